//! A suite for `hakmem bench` of programs that only pretend to work.
//!
//! Every fake is one shell script, which knows its allocator by the folder of the copy that is preloaded
//! (.../NAME/libhakmem.so) and behaves as the test asks.

use super::{folder, hakmem, script};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Prints a line with $ops operations, $ns nanoseconds, $kb peak; $o is what it has mapped.
pub const SAY: &str = r#"
o="\"/nowhere/libc.so.6\""
[ -z "$LD_PRELOAD" ] || o="$o,\"$LD_PRELOAD\""
name=glibc
[ -z "$LD_PRELOAD" ] || { name=${LD_PRELOAD%/*}; name=${name##*/}; }
ns=1000000 kb=2048
say() {
    echo "{\"workload\":\"fake\",\"args\":[],\"ops\":1000,\"wall_ns\":$ns,\"cpu_ns\":$ns,\"resident_kb\":$kb,\
\"peak_kb\":$kb,\"faults\":5,\"objects\":[$o]$more}"
}
"#;

/// A suite of rows, each with a script of its name.
pub struct Fake {
    pub folder: PathBuf,
}

impl Fake {
    pub fn new(test: &str, rows: &[(&str, &str)]) -> Fake {
        let folder = folder(test);
        let mut suite = String::new();
        for (name, body) in rows {
            script(&folder, name, &format!("#!/bin/sh\nhere={}\n{SAY}{body}\n", folder.display()));
            suite += &format!(
                "[[row]]\nname = \"{name}\"\nabout = \"pretends\"\nprogram = \"{name}\"\nquick = [\"1\"]\n\
                 full = [\"2\"]\ntime = \"cpu\"\nprofiles = [\"quick\"]\n"
            );
        }
        fs::write(folder.join("suite.toml"), suite).unwrap();
        Fake { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The bench with HAKMEM and others; each of `peers` is the stand-in under another name.
    pub fn bench(&self, peers: &[&str], arguments: &[&str]) -> Command {
        let own = |peer: &&str| match *peer {
            "glibc" | "hakmem" => (*peer).to_owned(),
            peer => format!("{peer}=hakmem"),
        };
        let with = peers.iter().map(own).collect::<Vec<_>>().join(",");
        let mut command = hakmem(&["bench", "--with", &with]);
        command.args(arguments).args(["--json", self.path("out.json").to_str().unwrap()]);
        command.env("HAKMEM_BENCH_DIR", &self.folder).env("HAKMEM_BENCH_SUITE", self.path("suite.toml"));
        command
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("out.json")).unwrap()).unwrap()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}
