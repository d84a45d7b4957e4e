//! `hakmem run`: the program must not notice that a command stood in front of it, whether the command stays
//! for the report or not.

mod common;

use common::{
    WAYS, assert_refused, compile, executable, folder, hakmem, output, program, script, stand_in, with,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_exit_status_is_the_programs() {
    for way in WAYS {
        for status in [0, 1, 77, 255] {
            let (code, _, _) = output(&mut with(way, &["sh", "-c", &format!("exit {status}")]));
            assert_eq!(code, Some(status), "{way:?}");
        }
    }
}

#[test]
fn input_and_output_are_the_programs() {
    for way in WAYS {
        let mut child = with(way, &["cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let data = vec![b'x'; 300_000];
        let mut stdin = child.stdin.take().unwrap();
        let sent = data.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
        let mut received = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
        writer.join().unwrap();
        assert!(child.wait().unwrap().success());
        assert!(received == data, "{way:?}: {} bytes", received.len());
    }
}

#[test]
fn arguments_arrive_as_they_are() {
    for way in WAYS {
        let (_, stdout, _) =
            output(&mut with(way, &["printf", "[%s]", "--report", "", "a b", "--", "-x=\n"]));
        assert_eq!(stdout, "[--report][][a b][--][-x=\n]");
    }
    // Without the dashes the program ends our flags all the same.
    let (_, stdout, _) = output(&mut hakmem(&["run", "printf", "[%s]", "--stats"]));
    assert_eq!(stdout, "[--stats]");
}

#[test]
fn the_library_is_preloaded_first_and_options_are_passed() {
    let library = fs::canonicalize(stand_in()).unwrap();
    let script = "printf '%s|' \"$LD_PRELOAD\" \"$HAKMEM_STATS\" \"$HAKMEM_PURGE_DELAY_MS\" \"$HAKMEM_FREE_MAX_MB\" \
                  \"$HAKMEM_LIB\"";
    let mut command =
        hakmem(&["run", "--stats", "--purge-delay-ms", "5", "-o", "FREE-MAX-MB=7", "sh", "-c", script]);
    let (code, stdout, stderr) = output(&mut command);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout, format!("{}|1|5|7|{}|", library.display(), stand_in().display()));

    let before = folder("before").join("libbefore.so");
    symlink("/lib/x86_64-linux-gnu/libm.so.6", &before).unwrap();
    let mut command = hakmem(&["run", "sh", "-c", "echo $LD_PRELOAD"]);
    let (_, stdout, _) = output(command.env("LD_PRELOAD", &before));
    assert_eq!(stdout, format!("{}:{}\n", library.display(), before.display()));
}

#[test]
fn a_wrong_option_starts_nothing() {
    let mark = folder("wrong-option").join("mark");
    let touch = format!("touch {}", mark.display());
    for (flags, part) in [
        (&["--purge-delay-ms", "banana"][..], "purge_delay_ms=banana is not a number from 0 to 600000"),
        (&["--option", "statz=1"], "the nearest is stats"),
        (&["--option", "stats"], "has no =VALUE"),
        (&["--stats=2"], "stats=2 is not a number from 0 to 1"),
        (&["--stts"], "did you mean --stats?"),
    ] {
        let arguments = [&["run"], flags, &["sh", "-c", &touch]].concat();
        assert_refused(&mut hakmem(&arguments), 2, part);
    }
    assert!(!mark.exists());
}

#[test]
fn a_missing_program_is_127_and_one_that_cannot_run_126() {
    let folder = folder("lookup");
    let no_interpreter = script(&folder, "no-interpreter", "#!/no/such/interpreter\n");
    let plain = script(&folder, "plain", "#!/bin/sh\nexit 3\n");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for way in WAYS {
        assert_refused(&mut with(way, &["no-such-program"]), 127, "there is no such program in PATH");
        assert_refused(&mut with(way, &["/no/such/program"]), 127, "no such file");
        assert_refused(&mut with(way, &[plain.to_str().unwrap()]), 126, "permission denied");
        assert_refused(&mut with(way, &["/"]), 126, "is a directory");
        assert_refused(&mut with(way, &[no_interpreter.to_str().unwrap()]), 127, "interpreter is not there");
        // In PATH, what cannot be executed is passed over as long as something else can.
        assert_refused(with(way, &["plain"]).env("PATH", &folder), 126, "permission denied");
    }
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
    for way in WAYS {
        let (code, _, _) =
            output(with(way, &["plain"]).env("PATH", format!("/no/such:{}:/bin", folder.display())));
        assert_eq!(code, Some(3));
        let (code, _, _) = output(with(way, &["./plain"]).current_dir(&folder));
        assert_eq!(code, Some(3));
    }
    // Without a first line it is the shell's, as execvp has it.
    let plain = script(&folder, "plain", "exit $1\n");
    for way in WAYS {
        let (code, _, _) = output(&mut with(way, &[plain.to_str().unwrap(), "9"]));
        assert_eq!(code, Some(9));
    }
}

#[test]
fn what_the_library_would_refuse_starts_nothing() {
    for stage in ["banana", "", "auto "] {
        assert_refused(&mut hakmem(&["run", "--evo-policy", stage, "true"]), 2, "evo_policy");
    }
    assert_eq!(output(&mut hakmem(&["run", "--evo-policy", "Canary", "true"])).0, Some(0));
}

#[test]
fn without_a_library_nothing_is_started() {
    assert_refused(hakmem(&["run", "true"]).env("HAKMEM_LIB", "/no/such.so"), 125, "which is not there");
    assert_refused(hakmem(&["run", "true"]).env("HAKMEM_LIB", "/"), 125, "is not a file");
    assert_refused(hakmem(&["run", "true"]).env("HAKMEM_LIB", "/etc/passwd"), 125, "is no shared library");
    let other = folder("another").join("libhakmem.so");
    assert!(compile(other.parent().unwrap(), "libhakmem.so", "int other;", &["-shared", "-fPIC"]));
    assert_refused(hakmem(&["run", "true"]).env("HAKMEM_LIB", &other), 125, "which is not this library");
    let odd = folder("a blank").join("libhakmem.so");
    fs::copy(stand_in(), &odd).unwrap();
    assert_refused(hakmem(&["run", "true"]).env("HAKMEM_LIB", &odd), 125, "blank");
}

#[test]
fn the_library_is_found_beside_the_command_and_in_lib() {
    let folder = folder("installed");
    for (at, place) in
        ["bin/libhakmem.so", "lib/libhakmem.so", "lib/x86_64-linux-gnu/libhakmem.so.0"].iter().enumerate()
    {
        let root = folder.join(at.to_string());
        let library = root.join(place);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::copy(stand_in(), &library).unwrap();
        executable(&root.join("bin/hakmem"), Path::new(env!("CARGO_BIN_EXE_hakmem")));
        if place.contains("x86_64") && std::env::consts::ARCH != "x86_64" {
            continue;
        }
        let mut command = Command::new(root.join("bin/hakmem"));
        let (code, stdout, stderr) =
            output(command.args(["run", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("HAKMEM_LIB"));
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(stdout.trim(), fs::canonicalize(&library).unwrap().to_str().unwrap());
    }
}

/// The library says so at the end, when the work is done.
#[test]
fn a_policy_that_cannot_be_written_is_told_at_the_start() {
    let folder = folder("policy-place");
    let good = folder.join("a.policy");
    for way in WAYS {
        for (path, part) in [("/no/such/a.policy", "no such file"), ("/dev/null", "it is not a regular file")]
        {
            let line =
                format!("hakmem: note: what is learnt will not be kept: {path} cannot be written: {part}");
            let (code, stdout, stderr) = output(with(way, &["echo", "out"]).env("HAKMEM_POLICY", path));
            assert_eq!((code, stdout.as_str()), (Some(0), "out\n"));
            assert!(stderr.starts_with(&line), "{stderr}");
            let (_, _, stderr) = output(&mut hakmem(&["run", "--policy", path, "echo"]));
            assert!(stderr.starts_with(&line), "{stderr}");
            // One that is only used need not be written.
            let (_, _, stderr) =
                output(&mut hakmem(&["run", "--policy", path, "--evo-policy", "frozen", "echo"]));
            assert_eq!(stderr, "");
        }
        for fine in [good.to_str().unwrap(), "/no/%p/a.policy", ""] {
            let (_, _, stderr) = output(with(way, &["echo"]).env("HAKMEM_POLICY", fine));
            assert!(!stderr.contains("note:"), "{stderr}");
        }
    }
    assert!(!good.exists());
}

/// A chroot has none; a container that was made by `unshare --pid` alone has another's.
#[test]
fn the_library_is_found_without_proc_and_processes_are_not() {
    let folder = folder("no-proc");
    executable(&folder.join("hakmem"), Path::new(env!("CARGO_BIN_EXE_hakmem")));
    fs::copy(stand_in(), folder.join("libhakmem.so")).unwrap();
    let unshared = |flags: &[&str], line: &str| {
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", line]).current_dir(&folder).env_remove("HAKMEM_LIB");
        command
    };
    let bare = ["--mount", "--map-root-user"];
    if !unshared(&bare, "mount -t tmpfs none /proc").output().is_ok_and(|output| output.status.success()) {
        return; // not allowed here
    }
    let without = |line: &str| unshared(&bare, &format!("mount -t tmpfs none /proc && exec {line}"));
    let (code, stdout, stderr) = output(&mut without("./hakmem run sh -c 'echo $LD_PRELOAD'"));
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(Path::new(stdout.trim()), fs::canonicalize(folder.join("libhakmem.so")).unwrap());
    for line in ["record -p 1 -o x", "top --once", "doctor -p 1", "metrics -p 1", "explain -p 1"] {
        assert_refused(&mut without(&format!("./hakmem {line}")), 2, "/proc is not mounted here");
        let mut other = unshared(&["--pid", "--fork", "--map-root-user"], &format!("./hakmem {line}"));
        assert_refused(&mut other, 2, "/proc is another pid namespace's");
    }
}

#[test]
fn the_report_tells_what_the_library_and_the_kernel_know() {
    let (code, stdout, stderr) = output(&mut hakmem(&["run", "--report", "--", "echo", "out"]));
    assert_eq!((code, stdout.as_str()), (Some(0), "out\n"));
    for part in [
        "hakmem 7.8.9: echo ended with status 0",
        "wall, ",
        "at the peak, 3.0 MiB at the end",
        "11 blocks of 2.0 KiB at the end",
        "5,003 allocations, 4,992 frees",
        "1.0 MiB to the kernel, 4.0 KiB of it touched again",
        "visits     70 in all, new slab 3",
        "frees      event 5, large 2",
        "64       2           4,000           4,000               0",
    ] {
        assert!(stderr.contains(part), "'{part}' is not in: {stderr}");
    }
    assert!(!stderr.contains("dead"), "{stderr}");
    let (_, _, stderr) = output(&mut hakmem(&["run", "--report=full", "true"]));
    assert!(
        stderr.contains("visit_dead") && stderr.contains("frees on which a slab's countdown ended"),
        "{stderr}"
    );
}

const PARENT: &str = "#include <stdlib.h>\nint main(void) { return system(\"ls / >/dev/null\") | system(\"ls / >/dev/null\") | 4; }";

#[test]
fn the_programs_own_report_counts_not_its_childrens() {
    let parent = program(&folder("parent"), "parent", PARENT);
    let (code, _, stderr) = output(&mut hakmem(&["run", "--report", parent.to_str().unwrap()]));
    assert_eq!(code, Some(4));
    assert!(stderr.contains("2 processes that it started reported too and are not counted here"), "{stderr}");
    assert!(
        stderr.contains("MiB at the peak, 3.0 MiB at the end") && !stderr.contains("no report"),
        "{stderr}"
    );
}

#[test]
fn the_largest_child_stands_in_for_a_silent_program() {
    let quits = "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { _exit(system(\"ls / >/dev/null\") | 4); }";
    let quits = program(&folder("stands-in"), "quits", quits);
    let (code, _, stderr) = output(&mut hakmem(&["run", "--report", quits.to_str().unwrap()]));
    assert_eq!(code, Some(4));
    assert!(
        stderr.contains("no report from the library") && stderr.contains("1 process that it started"),
        "{stderr}"
    );
    assert!(
        stderr.contains("the one with most allocations:") && stderr.contains("visits     70"),
        "{stderr}"
    );
}

#[test]
fn a_program_that_reports_nothing_is_explained() {
    let folder = folder("silent");
    let quits = program(&folder, "quits", "#include <unistd.h>\nint main(void) { _exit(5); }");
    let (code, _, stderr) = output(&mut hakmem(&["run", "--report", quits.to_str().unwrap()]));
    assert_eq!(code, Some(5));
    assert!(
        stderr.contains("no report from the library: the program ended by _exit") && stderr.contains("wall"),
        "{stderr}"
    );

    let status = hakmem(&["run", "--report", "sh", "-c", "kill -9 $$"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&status.stderr);
    assert!(stderr.contains("SIGKILL ended the program before it could"), "{stderr}");

    if compile(&folder, "static", "int main(void) { return 6; }", &["-static"]) {
        let path = folder.join("static");
        let (code, _, stderr) = output(&mut hakmem(&["run", "--report", path.to_str().unwrap()]));
        assert_eq!(code, Some(6));
        assert!(stderr.contains("no report from the library: it is static"), "{stderr}");
        let profile = folder.join("a.hakprof");
        let (code, _, stderr) =
            output(&mut hakmem(&["run", "--record", profile.to_str().unwrap(), path.to_str().unwrap()]));
        assert!(code == Some(6) && stderr.contains("a.hakprof: it is static"), "{stderr}");
        // Without a report it is a note, since the user asked for the library and does not get it.
        for flags in [&["run"][..], &["run", "--guard", "1"]] {
            let (code, _, stderr) = output(&mut hakmem(&[flags, &[path.to_str().unwrap()]].concat()));
            assert_eq!(code, Some(6));
            assert!(
                stderr.starts_with("hakmem: note: ") && stderr.contains("runs without hakmem: it is static"),
                "{stderr}"
            );
        }
    }

    let (code, _, stderr) = output(hakmem(&["run", "--report", "true"]).env("TMPDIR", ""));
    assert!(code == Some(0) && stderr.contains("wall"), "an empty TMPDIR is none: {stderr}");

    let mut command = hakmem(&["run", "--report", "true"]);
    let (code, _, stderr) = output(command.env("STAND_IN_REPORT", "{\"cut"));
    assert_eq!(code, Some(0));
    assert!(stderr.contains("what it wrote cannot be read"), "{stderr}");
}

/// Its loader would end it: the library needs a C library that is not there.
#[test]
fn a_program_for_another_libc_runs_without_the_library() {
    let folder = folder("another-libc");
    let library = folder.join("libhakmem.so");
    let bare = ["-shared", "-fPIC", "-nostdlib"];
    assert!(compile(&folder, "libc.so", "int nothing;", &[&bare[..], &["-Wl,-soname,libc.so"]].concat()));
    let source = "const char *hak_version(void) { return \"7.8.9\"; }";
    let libc = folder.join("libc.so");
    let needs_it = ["-Wl,--no-as-needed", libc.to_str().unwrap()];
    assert!(compile(&folder, "libhakmem.so", source, &[&bare[..], &needs_it].concat()));
    fs::remove_file(&libc).unwrap();
    let before = folder.join("libbefore.so");
    assert!(compile(&folder, "libbefore.so", "int before;", &["-shared", "-fPIC"]));
    let ways = WAYS.into_iter().chain([&["explain", "--"][..]]);
    for (way, kept) in ways.flat_map(|way| [(way, ""), (way, before.to_str().unwrap())]) {
        let mut command = with(way, &["sh", "-c", "echo \"[$LD_PRELOAD]\"; exit 3"]);
        let (code, stdout, stderr) = output(command.env("HAKMEM_LIB", &library).env("LD_PRELOAD", kept));
        assert_eq!((code, stdout), (Some(3), format!("[{kept}]\n")), "{way:?}: {stderr}");
        assert!(stderr.contains("it is a program for glibc (") && stderr.contains("is for musl"), "{stderr}");
    }
}

#[test]
fn the_report_is_there_as_json() {
    let folder = folder("json");
    let path = folder.join("report.json");
    let three = program(&folder, "three", "int main(void) { return 3; }");
    let (code, stdout, stderr) =
        output(&mut hakmem(&["run", "--report-json", path.to_str().unwrap(), three.to_str().unwrap()]));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(3), "", ""));
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(report["version"], "7.8.9");
    assert_eq!(report["run"]["exit_status"], 3);
    assert!(report["run"]["resident_peak_bytes"].as_u64().unwrap() > 100_000);

    let status =
        hakmem(&["run", "--report-json", path.to_str().unwrap(), "sh", "-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(status.status.signal(), Some(libc::SIGKILL));
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((report["run"]["signal"].as_str(), report.get("version")), (Some("SIGKILL"), None));

    // The library's own option: the program's report, not its children's.
    let parent = program(&folder, "parent", PARENT);
    let (_, _, _) =
        output(hakmem(&["run", "--report", parent.to_str().unwrap()]).env("HAKMEM_REPORT", &path));
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((report["version"].as_str(), report.get("run")), (Some("7.8.9"), None));
    let (code, _, _) = output(&mut hakmem(&["run", "-o", &format!("report={}", path.display()), "true"]));
    assert_eq!(code, Some(0));
    assert!(fs::read_to_string(&path).unwrap().contains("exit_status"));
}

#[test]
fn a_place_that_cannot_be_written_starts_nothing() {
    let folder = folder("places");
    let mark = folder.join("mark");
    let started = ["run", "--", "touch", mark.to_str().unwrap()];
    for flag in ["--report-json", "--record"] {
        for (place, part) in [
            ("/no/such/folder/%p.x", ".x cannot be written: no such file"),
            ("/proc/x", "/proc/x cannot be written"),
            (folder.to_str().unwrap(), "cannot be written: it is a directory"),
        ] {
            let arguments = [&started[..1], &[flag, place], &started[1..]].concat();
            assert_refused(&mut hakmem(&arguments), 125, part);
        }
    }
    assert!(!mark.exists());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no draft is left");
}

#[test]
fn nothing_is_left_behind() {
    let folder = folder("100%p temporary"); // a mark of the library's in the name is no mark
    let (_, _, stderr) = output(hakmem(&["run", "--report", "true"]).env("TMPDIR", &folder));
    assert!(stderr.contains("visits     70"), "{stderr}");
    for script in ["exit 0", "kill -9 $$", "ls / >/dev/null"] {
        hakmem(&["run", "--report", "sh", "-c", script]).env("TMPDIR", &folder).output().unwrap();
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert_refused(
        hakmem(&["run", "--report", "true"]).env("TMPDIR", "/no/such"),
        125,
        "no folder for the report",
    );
}
