//! `hakmem doctor`, on programs made for it.

mod common;

use common::{assert_refused, compile, executable, folder, hakmem, output, program, script, stand_in};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MAIN: &str = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }";

fn doctor(path: &Path) -> (Option<i32>, String) {
    let (code, stdout, stderr) = output(&mut hakmem(&["doctor", path.to_str().unwrap()]));
    assert_eq!(stderr, "");
    (code, stdout)
}

fn assert_found(path: &Path, status: i32, severity: &str, part: &str) {
    let (code, stdout) = doctor(path);
    assert_eq!(code, Some(status), "{stdout}");
    let found = stdout.lines().any(|line| line.starts_with(severity) && line.contains(part));
    assert!(found, "no {severity} with '{part}': {stdout}");
}

#[test]
fn an_ordinary_program_has_nothing_serious() {
    let path = program(&folder("ordinary"), "ordinary", MAIN);
    let (code, stdout) = doctor(&path);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("libhakmem.so 7.8.9 is ") && stdout.contains("0 serious, "), "{stdout}");
    assert!(!stdout.contains('\x1b'));
}

#[test]
fn a_static_program_is_serious() {
    let folder = folder("static");
    for flag in ["-static", "-static-pie"] {
        if compile(&folder, "static", MAIN, &[flag]) {
            assert_found(
                &folder.join("static"),
                1,
                "serious",
                "it is static, so that nothing can be preloaded -> ",
            );
        }
    }
}

#[test]
fn a_sanitizer_is_serious() {
    let folder = folder("sanitizer");
    for (flags, name) in [
        (&["-fsanitize=address"][..], "AddressSanitizer"),
        (&["-fsanitize=address", "-static-libasan"], "AddressSanitizer"),
        (&["-fsanitize=thread"], "ThreadSanitizer"),
    ] {
        if compile(&folder, "sanitized", MAIN, flags) {
            assert_found(&folder.join("sanitized"), 1, "serious", &format!("is built with {name}"));
        }
    }
}

#[test]
fn a_program_with_a_malloc_of_its_own_is_serious() {
    let folder = folder("own");
    let own = "#include <stddef.h>\nstatic char b[9999]; void *malloc(size_t n) { return b + n % 7; }\n\
               void free(void *p) { (void)p; }\nint main(void) { free(malloc(1)); return 0; }";
    for flags in [&["-fno-builtin"][..], &["-fno-builtin", "-rdynamic"]] {
        assert!(compile(&folder, "own", own, flags));
        assert_found(&folder.join("own"), 1, "serious", "defines malloc itself");
    }
    let inside = "void *_rjem_malloc(unsigned long n) { return (void *)n; }\nint main(void) { return !_rjem_malloc(1); }";
    assert!(compile(&folder, "inside", inside, &[]));
    assert_found(&folder.join("inside"), 0, "warning", "has jemalloc inside");
    // A file's own helper of that name is nothing to warn of.
    let local = "static __attribute__((noinline)) int malloc(int n) { return n; }\nint main(void) { return malloc(0); }";
    assert!(compile(&folder, "local", local, &["-fno-builtin"]));
    assert_eq!(doctor(&folder.join("local")).0, Some(0));
}

#[test]
fn other_allocators_are_found_behind_libraries_too() {
    let folder = folder("linked");
    let place = folder.to_str().unwrap();
    assert!(compile(
        &folder,
        "libjemalloc.so.2",
        "int j(void) { return 0; }",
        &["-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2"]
    ));
    let user = "int j(void); int k(void) { return j(); }";
    let needs = format!("{place}/libjemalloc.so.2");
    assert!(compile(&folder, "libuser.so", user, &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", &needs]));
    let main = "int k(void); int main(void) { return k(); }";
    assert!(compile(
        &folder,
        "linked",
        main,
        &["-L", place, "-luser", "-Wl,-rpath,$ORIGIN", "-Wl,-rpath-link", place]
    ));
    assert_found(&folder.join("linked"), 0, "warning", "libuser.so needs libjemalloc.so.2");
}

/// The loader ends it.
#[test]
fn a_library_that_is_not_found_is_serious() {
    let folder = folder("not-found");
    let place = folder.to_str().unwrap();
    let shared = ["-shared", "-fPIC"];
    fs::create_dir(folder.join("in")).unwrap();
    assert!(compile(&folder, "in/libinner.so", "int j(void) { return 0; }", &shared));
    let user = "int j(void); int k(void) { return j(); }";
    let inner = ["-L", &format!("{place}/in"), "-linner"];
    assert!(compile(&folder, "libuser.so", user, &[&shared[..], &inner].concat()));
    let main = "int k(void); int main(void) { return k(); }";
    let path = folder.join("needs");
    for (tags, status) in [("--disable-new-dtags", 0), ("--enable-new-dtags", 1)] {
        let rpath = format!("-Wl,{tags},-rpath,$ORIGIN:$ORIGIN/in");
        let link = ["-L", place, "-luser", &rpath, "-Wl,-rpath-link", &format!("{place}/in")];
        assert!(compile(&folder, "needs", main, &link));
        // An rpath is for the library's own library, too, a runpath is not.
        assert_eq!(Command::new(&path).stderr(Stdio::null()).status().unwrap().success(), status == 0);
        assert_eq!(doctor(&path).0, Some(status), "{tags}");
    }
    assert_found(&path, 1, "serious", "libuser.so needs libinner.so, which is not found -> install it");
    fs::remove_file(folder.join("libuser.so")).unwrap();
    assert_found(&path, 1, "serious", "needs libuser.so, which is not found -> install it");
}

#[test]
fn a_program_that_is_linked_with_the_library_needs_nothing() {
    let folder = folder("with-library");
    let library = stand_in().to_str().unwrap();
    assert!(compile(
        &folder,
        "with",
        "const char *hak_version(void); int main(void) { return !hak_version(); }",
        &[library]
    ));
    assert_found(&folder.join("with"), 0, "ok", "is linked with hakmem");
}

#[test]
fn setuid_and_setgid_are_serious_where_they_give_rights() {
    let path = program(&folder("setuid"), "setuid", MAIN);
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    set(0o4755);
    assert_found(&path, 0, "note", "it is setuid to user"); // our own: started like any other
    if unsafe { libc::geteuid() } == 0 {
        chown(&path, Some(65534), Some(65534)).unwrap();
        set(0o4755);
        assert_found(
            &path,
            1,
            "serious",
            "it is setuid to user 65534, so that the loader ignores LD_PRELOAD",
        );
        set(0o2755);
        assert_found(&path, 1, "serious", "it is setgid to group 65534");
    }
}

#[test]
fn a_script_is_followed_to_its_interpreter() {
    let folder = folder("script");
    let first = script(&folder, "first", "#!/usr/bin/env sh\n");
    let second = script(&folder, "second", &format!("#! {} -x\n", first.display()));
    assert_found(&second, 0, "ok", "first is a script; its interpreter ");
    assert_found(&script(&folder, "plain", "echo\n"), 0, "ok", "its interpreter /bin/sh");
    assert_found(
        &script(&folder, "lost", "#!/no/such/shell\n"),
        1,
        "serious",
        "is a script for /no/such/shell",
    );
    let round = folder.join("round");
    script(&folder, "round", &format!("#!{}\n", round.display()));
    assert_found(&round, 1, "serious", "without end");
    fs::write(&round, b"\x00\x01\x02").unwrap();
    assert_found(&round, 1, "serious", "neither a program nor a script");
}

/// The same file with a word of its header changed: field offsets from the ELF specification.
fn patched(folder: &Path, offset: usize, byte: u8) -> PathBuf {
    let mut bytes = fs::read(program(folder, "patched", MAIN)).unwrap();
    bytes[offset] = byte;
    fs::write(folder.join("patched"), bytes).unwrap();
    folder.join("patched")
}

#[test]
fn a_program_for_another_machine_is_serious() {
    let path = patched(&folder("machine"), 18, 0xf3); // e_machine: RISC-V
    assert_found(&path, 1, "serious", "it is a program for RISC-V");
}

#[test]
fn broken_files_are_refused_on_one_line() {
    let folder = folder("broken");
    let whole = fs::read(program(&folder, "whole", MAIN)).unwrap();
    let path = script(&folder, "broken", "");
    for bytes in [&whole[..20], &whole[..64], &whole[..whole.len() / 2]] {
        fs::write(&path, bytes).unwrap();
        let (code, stdout, stderr) = output(&mut hakmem(&["doctor", path.to_str().unwrap()]));
        assert!(matches!(code, Some(0..=2)), "{stdout}{stderr}");
        assert!(stderr.lines().count() <= 1, "{stderr}");
    }
    // Every byte of the headers, wrong: whatever is said, it is said without a crash.
    for offset in (0..whole.len().min(1024)).step_by(3) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0xff;
        fs::write(&path, bytes).unwrap();
        let (code, _, stderr) = output(&mut hakmem(&["doctor", path.to_str().unwrap()]));
        assert!(matches!(code, Some(0..=2)), "byte {offset}: {stderr}");
    }
}

#[test]
fn what_cannot_be_examined_is_one_line() {
    assert_refused(&mut hakmem(&["doctor", "no-such-program"]), 2, "there is no such program");
    assert_refused(&mut hakmem(&["doctor", "/no/such"]), 2, "no such file");
    assert_refused(&mut hakmem(&["doctor", "-p", "4194304"]), 2, "there is no process 4194304");
    assert_refused(&mut hakmem(&["doctor", "-p", "banana"]), 2, "banana");
    assert_refused(&mut hakmem(&["doctor", "-p", "0"]), 2, "0");
    assert_refused(&mut hakmem(&["doctor", "-p", "1", "true"]), 2, "cannot be used with");
}

#[test]
fn a_missing_library_is_serious() {
    let (code, stdout, _) = output(hakmem(&["doctor"]).env("HAKMEM_LIB", "/no/such.so"));
    assert_eq!(code, Some(1));
    assert!(stdout.contains("HAKMEM_LIB names /no/such.so"), "{stdout}");
}

#[test]
fn limits_and_environment_are_seen() {
    let limited = |limit: &str| {
        let script = format!("ulimit -v {limit}; exec \"$0\" doctor");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_hakmem")])
            .env("HAKMEM_LIB", stand_in())
            .env_remove("LD_PRELOAD");
        output(&mut command)
    };
    let (code, stdout, _) = limited("1000000");
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("address space is limited to 976.6 MiB"), "{stdout}");
    let (code, stdout, _) = limited("60000");
    assert_eq!(code, Some(1), "{stdout}");

    let mut command = hakmem(&["doctor"]);
    command
        .env("MALLOC_ARENA_MAX", "2")
        .env("GLIBC_TUNABLES", "glibc.malloc.check=3")
        .env("HAKMEM_STATZ", "1");
    let (code, stdout, _) = output(&mut command);
    assert_eq!(code, Some(0), "{stdout}");
    for part in ["MALLOC_ARENA_MAX is set", "glibc.malloc.check=3", "the nearest is HAKMEM_STATS"] {
        assert!(stdout.contains(part), "{stdout}");
    }
}

#[test]
fn a_running_process_is_examined() {
    let mut with = hakmem(&["run", "sleep", "100"]).stdin(Stdio::null()).spawn().unwrap();
    let mut without = Command::new("sleep").arg("100").env_remove("LD_PRELOAD").spawn().unwrap();
    // The command becomes the program, and the loader maps libraries: wait until both have happened.
    let wait_until = |pid: u32, file: &str, part: &str| {
        for _ in 0..4000 {
            if fs::read_to_string(format!("/proc/{pid}/{file}")).is_ok_and(|text| text.contains(part)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("process {pid} does not come up");
    };
    wait_until(with.id(), "comm", "sleep");
    wait_until(with.id(), "maps", "libhakmem.so");
    wait_until(without.id(), "maps", "libc.so");
    let look = |pid: u32| output(&mut hakmem(&["doctor", "-p", &pid.to_string()]));
    let seen = [look(with.id()), look(without.id())];
    for child in [&mut with, &mut without] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let [(code, stdout, stderr), (code_without, stdout_without, _)] = seen;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains(&format!("process {} has libhakmem.so 7.8.9", with.id())), "{stdout}");
    assert_eq!(code_without, Some(1), "{stdout_without}");
    assert!(stdout_without.contains("runs without hakmem"), "{stdout_without}");
}

/// Whoever owns the process chose its environment; who looks may be root at a terminal.
#[test]
fn what_stands_in_an_environment_reaches_no_terminal() {
    let mut child = Command::new("sleep")
        .arg("100")
        .env_remove("LD_PRELOAD")
        .env("HAKMEM_\x1b[2J\x1b]0;x\x07", "1\nserious: two lines\x1b[31m")
        .env("MALLOC_ARENA_MAX", "2\nserious three")
        .env("GLIBC_TUNABLES", "glibc.malloc.check=3\x1b[31m\nserious four")
        .spawn()
        .unwrap();
    let plain = |stdout: &str| !stdout.contains(|c: char| c.is_control() && c != '\n');
    let mut shown = String::new();
    for _ in 0..4000 {
        shown = output(&mut hakmem(&["doctor", "-p", &child.id().to_string()])).1;
        if shown.contains("glibc.malloc.check=3") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(shown.contains("glibc.malloc.check=3") && plain(&shown), "{shown:?}");
    assert!(
        !shown.lines().any(|line| ["serious: two", "serious three", "serious four"]
            .iter()
            .any(|part| line.starts_with(part))),
        "{shown:?}"
    );
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    let us = unsafe { libc::geteuid() };
    if us != 0 {
        // In a container it may be ours.
        if fs::metadata("/proc/1").is_ok_and(|first| std::os::unix::fs::MetadataExt::uid(&first) != us) {
            assert_refused(&mut hakmem(&["doctor", "-p", "1"]), 2, "may not be read");
        }
        return;
    }
    // As root, become nobody first; the binary must be readable to them.
    let folder = std::env::temp_dir().join(format!("hakmem-test-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join("hakmem");
    executable(&copy, Path::new(env!("CARGO_BIN_EXE_hakmem")));
    let mut command = Command::new(&copy);
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let pid = std::process::id().to_string();
    let (code, stdout, stderr) = output(command.args(["doctor", "-p", &pid]).current_dir("/"));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("may not be read") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn findings_are_there_as_json() {
    let (code, stdout, _) = output(hakmem(&["doctor", "--json"]).env("MALLOC_CHECK_", "1"));
    assert_eq!(code, Some(0));
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let findings = value["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|f| f["severity"] == "note" && f["what"].as_str().unwrap().contains("MALLOC_CHECK_"))
    );
}
