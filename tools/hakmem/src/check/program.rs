//! program.rs - what a program's file says about running it with the library.
//!
//! Order: scripts are followed to their interpreter; then what stops the preload at all; then what brings a
//!        malloc of its own; then what is only worth knowing.

use super::{Finding, Severity, allocator_of, note, ok, sanitizer_of, serious, warning};
use crate::elf::{self, File, Headers, Symbols};
use crate::text::quote;
use crate::{library, process, shared_objects, system};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the loader does not, or must not, preload the library.
pub struct Obstacle {
    pub what: String,
    pub advice: &'static str,
    /// Its loader would try all the same, and end the program or complain. Elsewhere LD_PRELOAD does no harm, and is for
    /// what the program starts.
    pub is_foreign: bool,
}

pub fn check(path: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let Some((path, headers)) = examined_program(path, findings)? else { return Ok(()) };
    let shown = quote(&path);
    if !headers.is_program || (headers.interpreter.is_none() && headers.soname.is_some()) {
        findings.push(serious(
            format!("{shown} is not a program, but a library or an object file"),
            "name a program",
        ));
        return Ok(());
    }
    let ours = match library::find().map(|found| elf::open(&found.path)) {
        Ok(Ok(File::Elf(ours))) => Some(ours),
        _ => None,
    };
    let before = findings.len();
    let symbols = elf::symbols(&path, &is_wanted)?;
    if let Some(obstacle) =
        preload_obstacle(&path, &headers, ours.as_ref()).filter(|_| !has_ours(&headers, &symbols))
    {
        findings.push(serious(format!("{shown}: {}", obstacle.what), obstacle.advice));
    }
    if let Some(what) = privileges(&path).filter(|_| !gains_privileges(&path)) {
        let what = format!("{shown}: {what}; for you it gains nothing, but for others LD_PRELOAD is ignored");
        findings.push(note(what, "link it with libhakmem.a where it must serve them as well"));
    }
    symbols_check(&shown, &headers, &symbols, findings);
    libraries_check(&path, &headers, findings);
    kind_check(&path, &headers, findings);
    if symbols.imported.contains("mlockall") {
        lock_check(&shown, findings);
    }
    if findings[before..].iter().all(|finding| finding.severity > Severity::Warning) {
        findings.push(ok(format!("{shown} takes the library")));
    }
    Ok(())
}

/// The ELF file that the kernel would start for `path`, through scripts; None where there is none.
pub fn examined_program(
    path: &Path,
    findings: &mut Vec<Finding>,
) -> Result<Option<(PathBuf, Headers)>, String> {
    const DEPTH_MAX: usize = 5; // the kernel's own bound on scripts for scripts
    let mut path = path.to_owned();
    for _ in 0..=DEPTH_MAX {
        let next = match elf::open(&path)? {
            File::Elf(headers) => return Ok(Some((path, headers))),
            File::Script { interpreter, argument } => script_program(&interpreter, argument.as_deref()),
            File::Other if is_text(&path) => Ok(PathBuf::from("/bin/sh")),
            File::Other => {
                findings.push(serious(
                    format!("{} is neither a program nor a script", quote(&path)),
                    "name a program",
                ));
                return Ok(None);
            }
        };
        let next = match next {
            Ok(next) => next,
            Err(interpreter) => {
                let what =
                    format!("{} is a script for {}, which is not there", quote(&path), quote(&interpreter));
                findings.push(serious(what, "install the interpreter"));
                return Ok(None);
            }
        };
        findings.push(ok(format!(
            "{} is a script; its interpreter {} is examined",
            quote(&path),
            quote(&next)
        )));
        path = next;
    }
    findings.push(serious(
        format!("{} is a script of a script without end", quote(&path)),
        "mend its first line",
    ));
    Ok(None)
}

/// The program of a script's first line; env looks its own up in PATH.
fn script_program(interpreter: &str, argument: Option<&str>) -> Result<PathBuf, String> {
    let path = PathBuf::from(interpreter);
    if path.file_name() != Some(OsStr::new("env")) {
        return if path.is_file() { Ok(path) } else { Err(interpreter.to_owned()) };
    }
    let words = argument.unwrap_or_default().split([' ', '\t']);
    let name = words
        .map(|word| word.strip_prefix("-S").unwrap_or(word))
        .find(|word| !word.is_empty() && !word.starts_with('-') && !word.contains('='));
    let name = name.unwrap_or("env");
    process::program_find(OsStr::new(name)).map_err(|_| name.to_owned())
}

fn is_text(path: &Path) -> bool {
    let start = fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, 256), &mut bytes).map(|_| bytes)
    });
    start.is_ok_and(|bytes| !bytes.contains(&0))
}

/// `library`: what the library is for; without one, this machine and glibc.
pub fn preload_obstacle(path: &Path, headers: &Headers, library: Option<&Headers>) -> Option<Obstacle> {
    let here = (elf::machine_here(), cfg!(target_pointer_width = "64"));
    let (machine, is_64) = library.map_or(here, |library| (library.machine, library.is_64));
    if (headers.machine, headers.is_64) != (machine, is_64) {
        let (theirs, ours) =
            (elf::machine_name(headers.machine, headers.is_64), elf::machine_name(machine, is_64));
        let what = format!("it is a program for {theirs}, the library is for {ours}");
        return Some(Obstacle {
            what,
            advice: "build the library for that machine and name it in HAKMEM_LIB",
            is_foreign: true,
        });
    }
    let Some(interpreter) = &headers.interpreter else {
        return Some(if headers.is_go {
            let what = "it is a static Go program: it has no malloc, and nothing can be preloaded".to_owned();
            let advice = "nothing; only Go programs with C code (cgo) can gain";
            Obstacle { what, advice, is_foreign: false }
        } else {
            let what = "it is static, so that nothing can be preloaded".to_owned();
            let advice = "build it dynamically, or link it with libhakmem.a";
            Obstacle { what, advice, is_foreign: false }
        });
    };
    let (theirs, ours) = (headers.libc(), library.map_or("glibc", Headers::libc));
    if theirs != ours {
        let what = format!("it is a program for {theirs} ({interpreter}), and this library is for {ours}");
        return Some(Obstacle {
            what,
            advice: "build the library for that C library and name it in HAKMEM_LIB, or link it with its libhakmem.a",
            is_foreign: true,
        });
    }
    if gains_privileges(path) {
        let what = privileges(path).unwrap_or_default();
        let what = format!("{what}, so that the loader ignores LD_PRELOAD");
        return Some(Obstacle {
            what,
            advice: "link it with libhakmem.a, or start it as the user whom it belongs to",
            is_foreign: false,
        });
    }
    None
}

/// What makes the kernel start a file with more rights than its caller has.
fn privileges(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.mode() & libc::S_ISUID != 0 {
        return Some(format!("it is setuid to user {}", metadata.uid()));
    }
    if metadata.mode() & libc::S_ISGID != 0 && metadata.mode() & libc::S_IXGRP != 0 {
        return Some(format!("it is setgid to group {}", metadata.gid()));
    }
    system::has_file_capabilities(path).then(|| "it has file capabilities".to_owned())
}

/// Whether they are more rights for us: a file that is setuid to ourselves is started like any other.
fn gains_privileges(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let by_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != system::user_id();
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    let by_group = metadata.mode() & group_bits == group_bits && metadata.gid() != system::group_id();
    by_user || by_group || (system::user_id() != 0 && system::has_file_capabilities(path))
}

fn is_wanted(name: &str) -> bool {
    matches!(name, "malloc" | "mlockall" | "hak_version")
        || sanitizer_symbol(name).is_some()
        || bundled_symbol(name).is_some()
}

fn sanitizer_symbol(name: &str) -> Option<&'static str> {
    match name {
        "__asan_init" => Some("AddressSanitizer"),
        "__hwasan_init" => Some("HWAddressSanitizer"),
        "__tsan_init" => Some("ThreadSanitizer"),
        "__msan_init" => Some("MemorySanitizer"),
        "__lsan_init" => Some("LeakSanitizer"),
        _ => None,
    }
}

/// Allocators that programs carry inside, by the names that their builds give to malloc.
fn bundled_symbol(name: &str) -> Option<&'static str> {
    match name {
        "je_malloc" | "_rjem_malloc" | "rust_je_malloc" => Some("jemalloc"),
        "mi_malloc" => Some("mimalloc"),
        "tc_malloc" => Some("tcmalloc"),
        "rpmalloc" => Some("rpmalloc"),
        "sn_malloc" | "sn_rust_alloc" => Some("snmalloc"),
        _ => None,
    }
}

fn has_ours(headers: &Headers, symbols: &Symbols) -> bool {
    symbols.defined.contains("hak_version")
        || headers.needed.iter().any(|name| library::is_ours(Path::new(name)))
}

/// Is the library in it, or loaded with it, so that a preloaded one would stand idle beside?
pub fn is_linked(path: &Path, headers: &Headers) -> bool {
    elf::symbols(path, &|name| name == "hak_version").is_ok_and(|symbols| has_ours(headers, &symbols))
}

fn symbols_check(shown: &str, headers: &Headers, symbols: &Symbols, findings: &mut Vec<Finding>) {
    let all = || symbols.defined.iter().chain(&symbols.imported);
    let sanitizer = all().find_map(|name| sanitizer_symbol(name));
    let sanitizer = sanitizer.or_else(|| headers.needed.iter().find_map(|name| sanitizer_of(name)));
    let bundled = symbols.defined.iter().find_map(|name| bundled_symbol(name));
    if has_ours(headers, symbols) {
        findings.push(ok(format!("{shown} is linked with hakmem, no preload is needed")));
    } else if let Some(sanitizer) = sanitizer {
        findings.push(serious(
            format!("{shown} is built with {sanitizer}, which brings its own malloc"),
            "use a build without the sanitizer; a process has room for one malloc",
        ));
    } else if symbols.defined.contains("malloc") && headers.interpreter.is_some() {
        let whose = bundled.map(|name| format!(" ({name})")).unwrap_or_default();
        findings.push(serious(
            format!("{shown} defines malloc itself{whose}, which wins over a preloaded one"),
            "build it without, or link it with libhakmem.a instead",
        ));
    } else if let Some(bundled) = bundled {
        findings.push(warning(
            format!("{shown} has {bundled} inside and calls it by its own name: the library does not see those blocks"),
            format!("build it without {bundled}"),
        ));
    } else if headers.interpreter.is_some() && headers.is_go {
        findings.push(note(
            format!(
                "{shown} is a Go program: its own objects are in Go's heap, only C code (cgo) calls malloc"
            ),
            "nothing",
        ));
    }
}

fn libraries_check(path: &Path, headers: &Headers, findings: &mut Vec<Finding>) {
    for object in shared_objects::all_of(path, headers) {
        let (name, user) = (quote(&object.name), quote(&object.needed_by));
        if let Some(allocator) = allocator_of(&object.name) {
            let whose = if allocator == "jemalloc" {
                "malloc and mallocx are the library's, but mallctl is jemalloc's and speaks of what is not used"
                    .to_owned()
            } else {
                format!("malloc is the library's, but calls to {allocator}'s own functions are not")
            };
            findings.push(warning(
                format!("{user} needs {name}: {whose}"),
                format!("a build without {allocator} saves its start-up and memory"),
            ));
        } else if object.path.is_none() && !elf::is_musl(&object.name) {
            let what = format!("{user} needs {name}, which is not found");
            let advice = "install it, or set LD_LIBRARY_PATH";
            // musl's loader has folders of its own, which are not looked through.
            findings.push(match headers.libc() {
                "musl" => warning(what, advice),
                _ => serious(what, advice),
            });
        }
    }
}

fn kind_check(path: &Path, headers: &Headers, findings: &mut Vec<Finding>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_python =
        name.starts_with("python") || headers.needed.iter().any(|needed| needed.starts_with("libpython"));
    if is_python && std::env::var_os("PYTHONMALLOC").is_none() {
        findings.push(note(
            format!("{name} serves blocks of up to 512 bytes from pools of its own"),
            "PYTHONMALLOC=malloc gives them to the library",
        ));
    }
    if headers.needed.iter().any(|needed| needed == "libjli.so" || needed == "libjvm.so") {
        findings.push(note(
            format!("{name} keeps Java objects in a heap of its own; the library serves what is outside it"),
            "nothing",
        ));
    }
}

/// mlockall counts what the library maps ahead against the limit, unless it is root's.
fn lock_check(shown: &str, findings: &mut Vec<Finding>) {
    let Some(limit) = system::limit("self", "Max locked memory").filter(|_| system::user_id() != 0) else {
        return;
    };
    findings.push(warning(
        format!(
            "{shown} may lock its memory (mlockall), and what the library maps ahead, 4 to 32 MiB at a time, counts \
             towards the limit of {}",
            crate::text::bytes(limit)
        ),
        "raise ulimit -l",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_is_seen_through() {
        let shell = process::program_find(OsStr::new("sh")).unwrap();
        for argument in ["sh", "-S sh -e", "-i A=b sh", "-Ssh"] {
            assert_eq!(script_program("/usr/bin/env", Some(argument)), Ok(shell.clone()), "{argument}");
        }
        assert_eq!(script_program("/usr/bin/env", Some("no-such-shell")), Err("no-such-shell".to_owned()));
        assert_eq!(script_program("/no/such", None), Err("/no/such".to_owned()));
    }

    #[test]
    fn another_machine_static_and_another_libc_stop_the_preload() {
        let path = Path::new("/nowhere");
        let library = |needed: &str| Headers {
            needed: vec![needed.to_owned()],
            is_64: true,
            machine: elf::machine_here(),
            ..Headers::default()
        };
        let here = library("libc.so.6");
        let fits = Headers {
            machine: here.machine,
            is_64: true,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".to_owned()),
            ..Headers::default()
        };
        assert!(preload_obstacle(path, &fits, Some(&here)).is_none());
        let obstacle = |change: &dyn Fn(&mut Headers)| {
            let mut headers = fits.clone();
            change(&mut headers);
            preload_obstacle(path, &headers, Some(&here)).unwrap().what
        };
        assert!(obstacle(&|headers| headers.interpreter = None).starts_with("it is static,"));
        assert!(obstacle(&|headers| headers.is_64 = false).contains("program for"));
        assert!(obstacle(&|headers| headers.machine = 0).contains("program for ELF machine 0"));
        let musl = Headers { interpreter: Some("/lib/ld-musl-x86_64.so.1".to_owned()), ..fits.clone() };
        let what = |program: &Headers, library: &Headers| {
            preload_obstacle(path, program, Some(library)).map(|found| found.what)
        };
        assert!(what(&musl, &here).unwrap().ends_with("this library is for glibc"));
        for needed in ["libc.so", "libc.musl-x86_64.so.1"] {
            assert!(what(&musl, &library(needed)).is_none());
            assert!(what(&fits, &library(needed)).unwrap().ends_with("this library is for musl"));
        }
        let go = obstacle(&|headers| {
            headers.interpreter = None;
            headers.is_go = true;
        });
        assert!(go.contains("Go"));
    }
}
