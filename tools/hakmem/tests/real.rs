//! The command with the real library, that of the build folder which HAK_TEST_BUILD names (the build's tests set
//! it): the two must understand each other, and programs of this machine must give the same result with it as
//! without.

mod common;

use common::{compile, folder, hakmem, output};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn library() -> Option<PathBuf> {
    let library = std::env::var_os("HAK_TEST_BUILD").map(|build| PathBuf::from(build).join("libhakmem.so"));
    // e_machine of the two: another machine's library cannot be tried here.
    let machine = |path: &Path| fs::read(path).ok().and_then(|bytes| bytes.get(18..20).map(<[u8]>::to_vec));
    let fits = |path: &PathBuf| {
        machine(path).is_some_and(|theirs| Some(theirs) == machine(Path::new("/proc/self/exe")))
    };
    let library = library.filter(fits);
    if library.is_none() {
        eprintln!("skipped: HAK_TEST_BUILD names no build with a library for this machine");
    }
    library
}

fn hakmem_with(library: &PathBuf, arguments: &[&str]) -> Command {
    let mut command = hakmem(arguments);
    command.env("HAKMEM_LIB", library);
    command
}

#[test]
fn the_librarys_version_is_read_from_its_file() {
    let Some(library) = library() else { return };
    let (_, stdout, _) = output(&mut hakmem_with(&library, &["--version"]));
    let header =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/hakmem/hakmem.h")).unwrap();
    let (_, version) = header.split_once("#define HAKMEM_VERSION \"").unwrap();
    let version = version.split('"').next().unwrap();
    assert!(stdout.contains(&format!("libhakmem.so {version} (")), "{stdout}");
}

#[test]
fn every_number_that_the_report_needs_is_there() {
    let Some(library) = library() else { return };
    let folder = folder("real");
    let source = "#include <stdlib.h>\nint main(void) { void *volatile p; for (int i = 0; i < 10000; i++) p = malloc(100);\n\
                  p = malloc(1 << 20); return p == 0; }";
    assert!(compile(&folder, "allocates", source, &["-O0"]));
    let path = folder.join("report.json");
    let program = folder.join("allocates");
    let arguments = ["run", "--report", "--report-json", path.to_str().unwrap(), program.to_str().unwrap()];
    let (code, _, stderr) = output(&mut hakmem_with(&library, &arguments));
    assert_eq!(code, Some(0), "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for key in [
        "pid",
        "live_bytes",
        "resident_bytes",
        "reserved_bytes",
        "committed_bytes",
        "free_bytes",
        "returned_bytes",
        "retouched_bytes",
        "large_count",
        "large_bytes",
        "heap_count",
        "dead_heap_count",
    ] {
        assert!(report[key].is_u64(), "{key}: {report}");
    }
    assert!(report["live_bytes"].as_u64().unwrap() > 10000 * 100 + (1 << 20));
    let counters = report["counters"].as_object().unwrap();
    let visits = counters.iter().filter(|(name, _)| name.starts_with("visit_"));
    assert!(visits.map(|(_, count)| count.as_u64().unwrap()).sum::<u64>() >= 10000 / 64, "{report}");
    let classes = report["classes"].as_array().unwrap();
    let class = classes.iter().find(|class| class["bytes"] == 112).unwrap();
    assert!(class["live"].as_u64().unwrap() + 64 >= 10000, "{class}");
    let table =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/rules/counters.def")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("HAK_COUNTER("));
    assert_eq!(rows.count(), counters.len());
    assert!(stderr.contains("allocates ended with status 0") && !stderr.contains("no report"), "{stderr}");
}

/// A program with the library inside: libhakmem.a, which stands beside `library`.
fn linked(library: &Path, folder: &Path, name: &str, source: &str) -> PathBuf {
    let archive = library.with_file_name("libhakmem.a");
    assert!(compile(folder, name, source, &[archive.to_str().unwrap(), "-pthread"]));
    folder.join(name)
}

/// It has the library inside; its file was removed, or another one stands there, as after an upgrade.
#[test]
fn a_linked_program_whose_file_was_replaced_is_found() {
    let Some(library) = library() else { return };
    let folder = folder("real-replaced");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
                  int main(void) { free(malloc(100)); puts(\"up\"); fflush(stdout); return getchar() == 0; }";
    let file = linked(&library, &folder, "server", source);
    for is_another_there in [false, true] {
        let mut server = Command::new(&file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        assert_eq!(line, "up\n");
        let away = folder.join("away");
        fs::copy(&file, &away).unwrap();
        fs::remove_file(&file).unwrap();
        if is_another_there {
            common::executable(&file, Path::new("/bin/true"));
        }
        let (code, stdout, stderr) =
            output(&mut hakmem_with(&library, &["metrics", "-p", &server.id().to_string()]));
        drop(server.stdin.take());
        server.wait().unwrap();
        assert_eq!(code, Some(0), "another there: {is_another_there}: {stderr}");
        assert!(stdout.contains("hakmem_resident_bytes "), "{stdout}");
        common::executable(&file, &away);
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Two of them in one process would each have half of what is asked and learnt.
#[test]
fn a_linked_program_gets_no_second_library() {
    let Some(library) = library() else { return };
    let folder = folder("real-linked");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
                  int main(void) { char line[999]; int n = 0; FILE *maps = fopen(\"/proc/self/maps\", \"r\");\n\
                  while (fgets(line, sizeof line, maps)) n += strstr(line, \"libhakmem\") != NULL;\n\
                  free(malloc(100)); printf(\"%d mappings\\n\", n); return 0; }";
    let plain = common::program(&folder, "plain", source);
    for (program, is_linked) in [(linked(&library, &folder, "linked", source), true), (plain, false)] {
        let program = program.to_str().unwrap();
        for words in
            [&["run", "--", program][..], &["run", "--report", "--", program], &["explain", "--", program]]
        {
            let (code, stdout, stderr) = output(&mut hakmem_with(&library, words));
            assert_eq!(code, Some(0), "{words:?}: {stderr}");
            assert!(stdout.contains(" mappings\n"), "{words:?}: {stdout}");
            assert_eq!(stdout.lines().any(|line| line == "0 mappings"), is_linked, "{words:?}: {stdout}");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_dump_says_where_its_program_ran_and_how() {
    let Some(library) = library() else { return };
    let folder = folder("real-where-dump");
    let dump = folder.join("a.hakdump");
    let mut program = Command::new("sort");
    program
        .arg("/dev/null")
        .env("LD_PRELOAD", &library)
        .env("HAKMEM_RECORD", &dump)
        .env("HAKMEM_FREE_MAX_MB", "7");
    assert!(program.status().unwrap().success());
    let (code, page, stderr) =
        output(&mut hakmem_with(&library, &["report", dump.to_str().unwrap(), "-o", "-"]));
    assert_eq!(code, Some(0), "{stderr}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for text in
        [&format!("on {}", host.trim_end()), kernel.trim_end(), std::env::consts::ARCH, "free_max_mb=7"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("0 processors"));
    fs::remove_dir_all(&folder).unwrap();
}

/// As one of 10 to 16 GiB of small blocks: with more in it than the file of a profile may have.
#[test]
fn a_dump_of_a_large_heap_is_read() {
    const SLABS_BYTES: u64 = 260 << 20;
    let Some(library) = library() else { return };
    let folder = folder("real-large-dump");
    let (dump, profile) = (folder.join("a.hakdump"), folder.join("a.hakprof"));
    let (dump_text, profile_text) = (dump.to_str().unwrap(), profile.to_str().unwrap());
    let mut program = Command::new("sort");
    program.arg("/dev/null").env("LD_PRELOAD", &library).env("HAKMEM_RECORD", &dump);
    assert!(program.status().unwrap().success());
    let whole = fs::read(&dump).unwrap();
    let (rest, end) = whole.split_at(whole.len() - 40);
    assert!(end.starts_with(b"end\0"));
    let mut head = [0; 40];
    head[..5].copy_from_slice(b"slabs");
    for (at, value) in [(16, 2), (24, 0x1000), (32, SLABS_BYTES)] {
        head[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    fs::write(&dump, [rest, &head].concat()).unwrap();
    let file = fs::File::options().write(true).open(&dump).unwrap();
    file.write_all_at(end, rest.len() as u64 + 40 + SLABS_BYTES).unwrap();
    let (code, _, stderr) = output(&mut hakmem_with(&library, &["dump", dump_text, "-o", profile_text]));
    assert!(code == Some(0) && stderr.contains(" from sort, "), "{stderr}");
    let (code, stdout, stderr) = output(&mut hakmem_with(&library, &["guard", dump_text]));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "no misuse of a guarded block\n", ""));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn programs_of_this_machine_give_the_same_result() {
    let Some(library) = library() else { return };
    let python =
        "import json; d = {str(i): list(range(i % 50)) for i in range(20000)}; print(len(json.dumps(d)))";
    let perl = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..200000; my $n = 0; $n += length for values %h; print \"$n\\n\"";
    let sql = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 50000) \
               select count(*), sum(length(printf('%d-%s', x, hex(zeroblob(x % 99))))) from c;";
    for command in [
        &["python3", "-c", python][..],
        &["perl", "-e", perl],
        &["sqlite3", ":memory:", sql],
        &["git", "--version"],
        &["sh", "-c", "seq 1 20000 | sort -r | md5sum"],
    ] {
        let mut without = Command::new(command[0]);
        let Ok(expected) = without.args(&command[1..]).env_remove("LD_PRELOAD").output() else { continue };
        for way in [&["run", "--"][..], &["run", "--report", "--"]] {
            let (code, stdout, stderr) = output(&mut hakmem_with(&library, &[way, command].concat()));
            assert_eq!(code, expected.status.code(), "{command:?}: {stderr}");
            assert_eq!(stdout.as_bytes(), expected.stdout, "{command:?}");
        }
    }
}

#[test]
fn tool_and_library_agree_on_what_is_a_value() {
    let Some(library) = library() else { return };
    for (flag, variable, value, taken) in [
        ("stats", "HAKMEM_STATS", "2", false),
        ("crash-report", "HAKMEM_CRASH_REPORT", "yes", true),
        ("crash-report", "HAKMEM_CRASH_REPORT", "", false),
        ("word-bytes", "HAKMEM_WORD_BYTES", "262144", true),
        ("word-bytes", "HAKMEM_WORD_BYTES", "262145", false),
        ("word-bytes", "HAKMEM_WORD_BYTES", "8k", false),
        ("word-bytes", "HAKMEM_WORD_BYTES", "18446744073709551616", false),
    ] {
        let (code, _, stderr) =
            output(&mut hakmem_with(&library, &["run", &format!("--{flag}={value}"), "true"]));
        assert_eq!(
            (code, stderr.is_empty()),
            (Some(if taken { 0 } else { 2 }), taken),
            "{flag}={value}: {stderr}"
        );
        let (code, _, stderr) = output(hakmem_with(&library, &["run", "true"]).env(variable, value));
        assert_eq!((code, stderr.is_empty()), (Some(0), taken), "{variable}={value}: {stderr}");
    }
}
