//! `hakmem policy` and `hakmem explain`: what is shown and merged, and what is said of files that are none.

mod common;

use common::{assert_refused, folder, hakmem, output};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const GOOD: &str = "hakmem-policy 1\nprogram 4c1b0a7e2f3d5b6a redis-server\nlibrary 0.1.0\nruns 3\nstage frozen\n\
                    strategy hold\ngain 61200 8100 45\nknob free_max_mb 64\nrating hold 34 9 62 in\n";

fn ended(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{text}end {hash:016x}\n")
}

fn refused(path: &Path, part: &str) {
    let path = path.to_str().unwrap();
    assert_refused(&mut hakmem(&["policy", "show", path]), 1, part);
    assert_refused(&mut hakmem(&["policy", "merge", path]), 1, part);
}

#[test]
fn a_policy_is_shown_and_explained_alike() {
    let path = folder("policy-show").join("a.policy");
    fs::write(&path, ended(GOOD)).unwrap();
    let (code, shown, stderr) = output(&mut hakmem(&["policy", "show", path.to_str().unwrap()]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(shown.starts_with("redis-server (build-id 4c1b0a7e2f3d), 3 runs, HAKMEM 0.1.0\n"), "{shown}");
    assert!(shown.contains("free_max_mb is 64 instead of"), "{shown}");
    let (code, explained, _) = output(&mut hakmem(&["explain", path.to_str().unwrap()]));
    assert_eq!((code, explained), (Some(0), shown));
    let (_, text, _) = output(&mut hakmem(&["policy", "show", "--text", path.to_str().unwrap()]));
    assert_eq!(text, ended(GOOD));
}

#[test]
fn what_is_no_policy_is_one_line() {
    let folder = folder("policy-bad");
    let file = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        path
    };
    refused(&file("empty", b""), "empty");
    refused(&file("elf", b"\x7fELF\x02\x01\x01\0\0\0"), "not a policy file");
    refused(&file("text", b"hello\n"), "line 1: not a policy file");
    refused(&file("later", ended(&GOOD.replace("policy 1", "policy 9")).as_bytes()), "version 9");
    let good = ended(GOOD);
    refused(&file("cut", &good.as_bytes()[..good.len() / 2]), "line ");
    refused(
        &file("damaged", good.replace("runs 3", "runs 4").as_bytes()),
        "the sum over the file is another",
    );
    refused(
        &file("hostile", ended(&GOOD.replace("redis-server", "\u{1b}[2J")).as_bytes()),
        "line 2: a name is",
    );
    refused(&file("large", &vec![b'#'; 600 << 10]), "larger than");
    refused(&folder, "not a regular file");
    refused(Path::new("/dev/zero"), "not a regular file");
    refused(Path::new("/no/such.policy"), "no such file");
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    refused(&fifo, "not a regular file");
    let path = file("locked", good.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_err() {
        refused(&path, "permission denied"); // root reads it
    }
    assert_refused(&mut hakmem(&["explain", "/no/such.policy"]), 1, "no such file");
    assert_refused(&mut hakmem(&["explain", folder.join("text").to_str().unwrap()]), 1, "not a policy file");
    assert_refused(&mut hakmem(&["explain"]), 2, "missing");
    assert_refused(&mut hakmem(&["explain", "-p", "x"]), 2, "");
    assert_refused(&mut hakmem(&["explain", "-p", "0"]), 2, "0 is not in 1..");
    assert_refused(&mut hakmem(&["policy"]), 2, "");
    assert_refused(&mut hakmem(&["policy", "merge"]), 2, "missing");
}

#[test]
fn policies_are_merged_into_one_file() {
    let folder = folder("policy-merge");
    let (a, b, out) = (folder.join("a"), folder.join("b"), folder.join("all.policy"));
    fs::write(&a, ended(GOOD)).unwrap();
    fs::write(&b, ended(&GOOD.replace("runs 3", "runs 4"))).unwrap();
    let merge = |more: &[&str]| {
        let mut command = hakmem(&["policy", "merge", a.to_str().unwrap(), b.to_str().unwrap()]);
        command.args(more);
        command
    };
    let (code, text, stderr) = output(&mut merge(&[]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(text.contains("\nruns 7\n") && text.contains("\nrating hold 34 6 124 in\n"), "{text}");
    // A link is replaced, not followed; the file is its owner's alone.
    let other = folder.join("other");
    fs::write(&other, "untouched").unwrap();
    symlink(&other, &out).unwrap();
    let (code, stdout, _) = output(&mut merge(&["-o", out.to_str().unwrap()]));
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert_eq!(
        (fs::read_to_string(&out).unwrap(), fs::read_to_string(&other).unwrap()),
        (text, "untouched".into())
    );
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "no draft is left");
    assert_refused(&mut merge(&["-o", "/no/such/folder/x"]), 1, "cannot be written");
    assert_refused(&mut merge(&["-o", folder.to_str().unwrap()]), 1, "no regular file");
    // What is merged is not written to, by the shell neither.
    let before = fs::read(&a).unwrap();
    assert_refused(&mut merge(&["-o", a.to_str().unwrap()]), 2, "is merged, and cannot be the output");
    let appended = fs::OpenOptions::new().append(true).open(&a).unwrap();
    let refused = merge(&[]).stdout(appended).output().unwrap();
    assert_eq!((refused.status.code(), fs::read(&a).unwrap()), (Some(2), before));
    // Another program's.
    fs::write(&b, ended(&GOOD.replace("4c1b", "0000"))).unwrap();
    assert_refused(&mut merge(&[]), 1, "is of another program");
}

#[test]
fn what_a_program_has_taught_is_told_at_its_end() {
    let report = r#"{"version": "7.8.9", "learn": {"stage": "learn", "policy": "auto", "strategy": "hold",
        "frozen_strategy": "baseline", "windows": 12, "duels": 3, "void_duels": 0, "noise_millionths": 9000,
        "gain_duels": 0, "ratings": [{"strategy": "hold", "elo": 34, "elo_error": 9, "gain_millionths": 61200,
        "error_millionths": 8100, "duels": 3, "state": "in"}], "history": [{"ms": 1000, "from": "off", "to": "learn",
        "reason": "second_over", "strategy": "baseline", "numbers": [0, 0]}]}}"#;
    let mut command = hakmem(&["explain", "--", "echo", "out"]);
    let (code, stdout, stderr) = output(command.env("STAND_IN_REPORT", report));
    assert_eq!((code, stdout.as_str()), (Some(0), "out\n"));
    for part in [
        "echo (process ",
        "LEARN: strategies duel; none has won yet",
        "12 windows, 3 duels.",
        "1.0 s  start -> learn: ",
    ] {
        assert!(stderr.contains(part), "'{part}' is not in:\n{stderr}");
    }
}

/// The caller's policy file has values of its own for the strategy that is in force, and the environment wins over both.
#[test]
fn options_are_told_as_they_are_in_force() {
    let path = folder("policy-in-force").join("echo.policy");
    fs::write(&path, ended(&GOOD.replace("free_max_mb 64", "free_max_mb 7\nknob purge_delay_ms 2000")))
        .unwrap();
    let report =
        r#"{"version": "7.8.9", "learn": {"stage": "frozen", "policy": "auto", "frozen_strategy": "hold"}}"#;
    let named = path.with_file_name("%e.policy");
    let mut command = hakmem(&["explain", "--", "echo", "out"]);
    command.env("STAND_IN_REPORT", report).env("HAKMEM_POLICY", named).env("HAKMEM_PURGE_DELAY_MS", "5");
    let (code, _, stderr) = output(&mut command);
    assert_eq!(code, Some(0));
    assert!(stderr.contains("free_max_mb is 7 instead of"), "{stderr}");
    assert!(stderr.contains(", as HAKMEM_PURGE_DELAY_MS says, not 2,000: "), "{stderr}");
    assert!(!stderr.contains("free_share"), "only the table of this command has it: {stderr}");
}

/// A child's file would be read as the program's, and a child that is another program would refuse it.
#[test]
fn each_process_that_is_explained_has_a_policy_of_its_own() {
    let command = ["explain", "--", "sh", "-c", "echo $HAKMEM_POLICY"];
    let (_, stdout, _) = output(hakmem(&command).env_remove("HAKMEM_POLICY"));
    assert!(stdout.ends_with("/%p.policy\n"), "{stdout}");
    let (_, stdout, _) = output(hakmem(&command).env("HAKMEM_POLICY", "/a/b"));
    assert_eq!(stdout, "/a/b\n");
}

/// The stand-in for the library learns nothing; the program's status is what counts.
#[test]
fn a_program_that_taught_nothing_is_said_so() {
    let (code, stdout, stderr) = output(&mut hakmem(&["explain", "--", "sh", "-c", "echo out; exit 7"]));
    assert_eq!((code, stdout.as_str()), (Some(7), "out\n"));
    assert!(stderr.contains("hakmem: nothing to explain: "), "{stderr}");
    assert_refused(&mut hakmem(&["explain", "--", "no-such-program"]), 127, "no-such-program");
}

// --- with the library -------------------------------------------------------------------------------------

/// The library of the build that HAK_TEST_BUILD names, if it learns.
fn library() -> Option<PathBuf> {
    let library = PathBuf::from(std::env::var_os("HAK_TEST_BUILD")?).join("libhakmem.so");
    let bytes = fs::read(&library).ok()?;
    let fits = bytes.get(18..20) == fs::read("/proc/self/exe").ok()?.get(18..20);
    let learns = bytes.windows(15).any(|window| window == b"hak_learn_shown");
    (fits && learns).then_some(library)
}

/// Allocates in bursts, for as many seconds as it is told.
const BURSTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int main(int argc, char **argv) {
    static char *block[40000];
    time_t end = time(NULL) + atoi(argv[1]);
    puts("begun");
    fflush(stdout);
    while (time(NULL) < end) {
        for (int i = 0; i < 40000; i++) block[i] = malloc(64 + i % 900), memset(block[i], 1, 64);
        for (int i = 0; i < 40000; i++) free(block[i]);
    }
    return 0;
}
"#;

/// What a program taught is written, shown, merged and believed again; and told while it runs.
#[test]
fn what_is_learnt_goes_round() {
    let Some(library) = library() else {
        eprintln!("skipped: HAK_TEST_BUILD names no build whose library learns");
        return;
    };
    let folder = folder("policy-real");
    assert!(common::compile(&folder, "bursts", BURSTS, &["-O1", "-fno-builtin", "-Wl,--build-id"]));
    let (program, policy) = (folder.join("bursts"), folder.join("a.policy"));
    let start = |policy: &Path, seconds: &str| {
        let mut command = Command::new(&program);
        command.arg(seconds).env("LD_PRELOAD", &library).env("HAKMEM_POLICY", policy);
        command.env("HAKMEM_LEARN_HURRY", "50").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let child = start(&policy, "6");
    // Until it says something of itself: the machine may be busy.
    let pid = child.id().to_string();
    let until = Instant::now() + Duration::from_secs(5);
    let told = loop {
        let (code, stdout, stderr) = output(&mut hakmem(&["explain", "-p", &pid]));
        if code == Some(0) && stdout.contains("start -> ") {
            break stdout;
        }
        assert!(code == Some(0) || stderr.lines().count() == 1, "{stderr}");
        assert!(Instant::now() < until, "{stdout}{stderr}");
        thread::sleep(Duration::from_millis(100));
    };
    assert!(
        told.starts_with(&format!("process {pid}, after ")) && told.contains("What was learnt\n"),
        "{told}"
    );
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    if !policy.exists() {
        eprintln!("nothing was learnt in 6 seconds: this machine is too busy");
        return;
    }
    let (code, shown, stderr) = output(&mut hakmem(&["policy", "show", policy.to_str().unwrap()]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(shown.starts_with("bursts (build-id ") && shown.contains(", 1 run, HAKMEM "), "{shown}");
    let merged = folder.join("merged.policy");
    let names = [&policy, &policy, &merged].map(|path| path.to_str().unwrap().to_owned());
    let (code, _, stderr) = output(&mut hakmem(&["policy", "merge", &names[0], &names[1], "-o", &names[2]]));
    assert_eq!(code, Some(0), "{stderr}");
    // The library believes what the tool wrote: it says nothing, and counts on.
    let end = start(&merged, "1").wait_with_output().unwrap();
    assert_eq!((end.status.code(), String::from_utf8_lossy(&end.stderr).as_ref()), (Some(0), ""));
    // And what is damaged neither does.
    fs::write(&merged, fs::read_to_string(&merged).unwrap().replace("\nlibrary 0", "\nlibrary 7")).unwrap();
    let end = start(&merged, "1").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&end.stderr).into_owned();
    assert!(
        end.status.code() == Some(0) && said.lines().count() == 1 && said.contains("is ignored"),
        "{said}"
    );
    refused(&merged, "the sum over the file is another");
}

/// Of a process the strategy's name is shown, which is not that of a row with other values (hold); its values are those of the file that it began with, and of its environment.
#[test]
fn options_in_force_are_told_of_a_process() {
    let Some(library) = library() else {
        eprintln!("skipped: HAK_TEST_BUILD names no build whose library learns");
        return;
    };
    let folder = folder("policy-live");
    let flags = ["-O1", "-fno-builtin", "-Wl,--build-id=0x4c1b0a7e2f3d5b6a"];
    assert!(common::compile(&folder, "bursts", BURSTS, &flags));
    let good = GOOD.replace("redis-server", "bursts").replace("free_max_mb 64", "free_max_mb 7");
    let policy = folder.join("bursts.policy");
    fs::write(&policy, ended(&good)).unwrap();
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new(folder.join("bursts"));
    command.arg("20").current_dir(&folder).env("LD_PRELOAD", &library).env("HAKMEM_POLICY", "%e.policy");
    command.env("HAKMEM_EVO_POLICY", "frozen").env("HAKMEM_WORD_BYTES", "8192").stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let (_, stdout, _) = output(&mut hakmem(&["explain", "-p", &child.id().to_string()]));
        if stdout.contains("FROZEN: saved") || Instant::now() > until {
            break stdout;
        }
        thread::sleep(Duration::from_millis(50));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(told.contains("free_max_mb is 7 instead of"), "{told}");
    assert!(
        told.contains("word_bytes is 8,192 instead of") && told.contains("as HAKMEM_WORD_BYTES says"),
        "{told}"
    );
    assert!(!told.contains("free_share"), "{told}");
}

#[test]
fn processes_that_show_nothing_are_told_on_one_line() {
    let own = std::process::id().to_string();
    assert_refused(&mut hakmem(&["explain", "-p", &own]), 2, &format!("process {own} "));
    assert_refused(&mut hakmem(&["explain", "-p", "2147483646"]), 2, "there is no process");
}
