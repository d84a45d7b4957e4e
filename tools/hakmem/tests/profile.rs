//! Files of profiles: those that are none, those that were changed, and what is made of them.

mod common;

use common::{assert_refused, folder, hakmem, output};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn sample() -> String {
    format!("{}/tests/data/sample.hakprof", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_file_that_is_no_profile_is_told_in_one_line() {
    let folder = folder("hostile");
    let whole = fs::read(sample()).unwrap();
    let cut = folder.join("cut.hakprof");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let empty = folder.join("empty.hakprof");
    fs::write(&empty, "").unwrap();
    let foreign = folder.join("foreign.hakprof");
    fs::write(&foreign, "#!/bin/sh\n").unwrap();
    let damaged = folder.join("damaged.hakprof");
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 0x55;
    fs::write(&damaged, bytes).unwrap();
    let cases = [
        (text(&cut), "is cut short"),
        (text(&empty), "is empty"),
        (text(&foreign), "is no hakmem profile"),
        (text(&damaged), "is damaged"),
        (text(&folder), "is a folder"),
        ("/no/such/file", "no such file"),
    ];
    for (path, part) in cases {
        let out = folder.join("out");
        for command in ["leaks", "pins"] {
            assert_refused(&mut hakmem(&[command, path]), 2, part);
        }
        assert_refused(&mut hakmem(&["pprof", path, "-o", text(&out)]), 2, part);
        assert_refused(&mut hakmem(&["diff", &sample(), path]), 2, part);
        assert_refused(&mut hakmem(&["diff", path, &sample()]), 2, part);
        assert!(!out.exists());
    }
    // Without end, and none: told by its first bytes.
    for path in ["/dev/zero", text(&foreign)] {
        assert_refused(&mut hakmem(&["guard", path]), 2, "is no dump of the library");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_changed_profile_never_brings_the_command_down() {
    let folder = folder("fuzz");
    let whole = fs::read(sample()).unwrap();
    let changed = folder.join("changed.hakprof");
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut bytes = whole.clone();
        bytes[at] = bytes[at].wrapping_add(1);
        fs::write(&changed, bytes).unwrap();
        let (code, _, stderr) = output(&mut hakmem(&["leaks", text(&changed)]));
        assert!(matches!(code, Some(0 | 2)), "byte {at}: {code:?} {stderr}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_profile_is_not_replaced_by_what_is_made_of_it() {
    let folder = folder("beside");
    let file = folder.join("w.html");
    fs::copy(sample(), &file).unwrap();
    let path = text(&file);
    for arguments in [
        &["report", path][..],
        &["report", path, "-o", path],
        &["pprof", path, "-o", path],
        &["dump", path, "-o", path],
    ] {
        assert_refused(&mut hakmem(arguments), 2, "w.html cannot be written: it is what is read");
    }
    assert_eq!(fs::read(&file).unwrap(), fs::read(sample()).unwrap());
    // A full disk leaves no empty file behind.
    let page = folder.join("p");
    for command in ["report", "pprof"] {
        let mut limited = hakmem(&[command, &sample(), "-o", text(&page)]);
        unsafe {
            limited.pre_exec(|| {
                let least = libc::rlimit { rlim_cur: 16, rlim_max: 16 };
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &least);
                Ok(())
            });
        }
        assert_refused(&mut limited, 2, "p cannot be written: file too large");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn pprof_reads_what_is_made_for_it() {
    let folder = folder("pprof");
    let file = folder.join("a.pb.gz");
    let (code, stdout, stderr) = output(&mut hakmem(&["pprof", &sample(), "-o", text(&file)]));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    let go =
        Command::new("go").args(["tool", "pprof", "-raw", text(&file)]).env("PPROF_TMPDIR", &folder).output();
    let Ok(go) = go else {
        eprintln!("go is not installed: skipped");
        return;
    };
    let raw = String::from_utf8_lossy(&go.stdout).into_owned();
    assert!(go.status.success(), "{}", String::from_utf8_lossy(&go.stderr));
    assert!(
        raw.contains("alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]"),
        "{raw}"
    );
    assert!(raw.contains("983040   62914560     819200   52428800: 2 1 5"), "{raw}");
    assert!(
        raw.contains("Node::make /src/server/node.h:7")
            && raw.contains("0123456789abcdef0123456789abcdef01234567")
    );
    fs::remove_dir_all(&folder).unwrap();
}
