//! `hakmem policy` and `hakmem explain`: what is shown and merged, and what is said of files that are none.

mod common;

use common::{assert_refused, folder, hakmem, output};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

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
    fs::set_permissions(&path, fs::Permissions::from_mode(0)).unwrap();
    if fs::read(&path).is_err() {
        refused(&path, "permission denied"); // root reads it
    }
    assert_refused(&mut hakmem(&["explain", "/no/such.policy"]), 1, "no such file");
    assert_refused(&mut hakmem(&["explain", folder.join("text").to_str().unwrap()]), 1, "not a policy file");
    assert_refused(&mut hakmem(&["explain"]), 2, "missing");
    assert_refused(&mut hakmem(&["explain", "-p", "x"]), 2, "");
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

/// The stand-in for the library learns nothing; the program's status is what counts.
#[test]
fn a_program_that_taught_nothing_is_said_so() {
    let (code, stdout, stderr) = output(&mut hakmem(&["explain", "--", "sh", "-c", "echo out; exit 7"]));
    assert_eq!((code, stdout.as_str()), (Some(7), "out\n"));
    assert!(stderr.contains("hakmem: nothing to explain: "), "{stderr}");
    assert_refused(&mut hakmem(&["explain", "--", "no-such-program"]), 127, "no-such-program");
}
