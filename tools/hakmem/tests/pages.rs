//! Manual pages and completions: made for every command, and taken by the shells that are there.

mod common;

use common::{assert_refused, folder, hakmem, output};
use std::fs;
use std::process::Command;

#[test]
fn completions_know_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, stderr) = output(&mut hakmem(&["completions", shell]));
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        for word in ["explain", "purge-delay-ms", "report-json"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        assert!(!script.contains("bench-launch"), "{shell} knows a hidden command");
    }
    let path = folder("pages-bash").join("hakmem");
    fs::write(&path, output(&mut hakmem(&["completions", "bash"])).1).unwrap();
    let words = format!(
        ". {}; COMP_WORDS=(hakmem po); COMP_CWORD=1; _hakmem hakmem po hakmem; echo \"${{COMPREPLY[*]}}\"",
        path.display()
    );
    let (code, said, stderr) = output(Command::new("bash").args(["--norc", "-c", &words]));
    assert_eq!((code, said.trim(), stderr.as_str()), (Some(0), "policy", ""));
    assert_refused(&mut hakmem(&["completions", "cmd.exe"]), 2, "cmd.exe");
}

#[test]
fn every_command_has_a_page() {
    let share = folder("pages-man").join("share");
    let place = share.to_str().unwrap();
    assert_eq!(output(&mut hakmem(&["pages", place])), (Some(0), String::new(), String::new()));
    let (_, help, _) = output(&mut hakmem(&["--help"]));
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.contains(&"run") && names.contains(&"completions"), "{names:?}");
    for name in names.into_iter().filter(|name| !name.is_empty() && *name != "help") {
        let page = fs::read_to_string(share.join(format!("man/man1/hakmem-{name}.1"))).expect(name);
        assert!(page.contains(&format!("hakmem\\-{name} \\- ")) && page.contains(".SH SYNOPSIS"), "{name}");
    }
    fs::write(share.join("zsh-file"), "").unwrap();
    assert_refused(&mut hakmem(&["pages", share.join("zsh-file").to_str().unwrap()]), 1, "cannot be written");
}
