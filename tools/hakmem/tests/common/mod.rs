//! What the integration tests share: the command under test, C programs made on the spot, and a stand-in for
//! the library that does what the tool relies on (it writes its report at exit, %p replaced by its process).

#![allow(dead_code)] // each test file uses its own part

pub mod fake;
pub mod published;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder of its own for each test, empty.
pub fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles `source` to `folder/name`; false if this machine's compiler cannot (no libasan, no static libc).
pub fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> bool {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let output = Command::new("cc").arg("-o").arg(folder.join(name)).arg(&file).args(flags).output();
    output.expect("a C compiler is needed for these tests").status.success()
}

pub fn program(folder: &Path, name: &str, source: &str) -> PathBuf {
    assert!(compile(folder, name, source, &[]), "{name} does not compile");
    folder.join(name)
}

/// Puts an executable file to `path`. Another process writes it: a file that we had open for writing ourselves may
/// still be so in a child that another test forks at this moment, and then cannot be executed (ETXTBSY).
pub fn executable(path: &Path, from: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from).arg(path).status().unwrap();
    assert!(status.success(), "{} cannot be made", path.display());
}

pub fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let draft = folder.join(format!("{name}.draft"));
    fs::write(&draft, text).unwrap();
    executable(&folder.join(name), &draft);
    folder.join(name)
}

const STAND_IN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
const char *hak_version(void) { return "7.8.9"; }
__attribute__((destructor)) static void report(void) {
    const char *pattern = getenv("HAKMEM_REPORT");
    const char *text = getenv("STAND_IN_REPORT");
    if (!pattern) return;
    char path[4096];
    char *to = path;
    for (; *pattern; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') to += sprintf(to, "%d", (int)getpid()), pattern++;
        else *to++ = *pattern, pattern += pattern[0] == '%' && pattern[1] == '%';
    }
    *to = 0;
    FILE *file = fopen(path, "w");
    if (!file) return;
    if (text) fputs(text, file);
    else fprintf(file,
        "{\"version\": \"7.8.9\", \"pid\": %d, \"live_bytes\": 2048, \"resident_bytes\": 3145728,"
        " \"returned_bytes\": 1048576, \"retouched_bytes\": 4096, \"large_count\": 1, \"large_bytes\": 65536,"
        " \"counters\": {\"visit\": 70, \"visit_new_slab\": 3, \"visit_dead\": 0, \"free_event\": 5,"
        " \"free_large\": 2, \"large_alloc\": 3},"
        " \"classes\": [{\"bytes\": 16, \"slabs\": 1, \"allocs\": 1000, \"frees\": 990, \"live\": 10},"
        " {\"bytes\": 64, \"slabs\": 2, \"allocs\": 4000, \"frees\": 4000, \"live\": 0}]}\n", (int)getpid());
    fclose(file);
}
"#;

/// The stand-in, compiled once per test program.
pub fn stand_in() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = folder("stand-in");
        assert!(compile(&folder, "libhakmem.so", STAND_IN, &["-shared", "-fPIC"]));
        folder.join("libhakmem.so")
    })
}

/// The command, with the stand-in as its library and nothing else of this environment that concerns it.
pub fn hakmem(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("HAKMEM")
            || name.starts_with("MALLOC_")
            || name == "LD_PRELOAD"
            || name == "GLIBC_TUNABLES"
        {
            command.env_remove(name);
        }
    }
    command.env("HAKMEM_LIB", stand_in()).args(arguments);
    command
}

pub fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// What is said when something is wrong: one line, on standard error only.
pub fn assert_refused(command: &mut Command, status: i32, part: &str) {
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(status), "{stderr}");
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.starts_with("hakmem: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(part), "'{part}' is not in: {stderr}");
}

/// Both ways to run: becoming the program, and staying until its end.
pub const WAYS: [&[&str]; 2] = [&["run", "--"], &["run", "--report", "--"]];

pub fn with(way: &[&str], command: &[&str]) -> Command {
    hakmem(&[way, command].concat())
}
