//! process.rs - whether a running process has the library, and what stands in its way there.

use super::{Finding, allocator_of, environment_check, note, ok, sanitizer_of, serious, warning};
use crate::recording::locate::published_address;
use crate::recording::memory::Process;
use crate::text::Failure;
use crate::{elf, library, system};
use std::io;
use std::path::{Path, PathBuf};

/// A process that cannot be looked at is a failure, not a finding.
pub fn check(pid: u32, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    if let Some(obstacle) = system::proc_obstacle() {
        return Err(Failure::usage(obstacle));
    }
    let refused = |error: io::Error| Process::of(pid).refusal(&error);
    let state = system::status_field(pid, "State").map_err(refused)?.unwrap_or_default();
    if state.starts_with('Z') {
        return Err(Failure::usage(format!("process {pid} has ended; only its status is left to be read")));
    }
    let mappings = system::mapped_files(pid).map_err(refused)?;
    if mappings.is_empty() {
        return Err(Failure::usage(format!(
            "process {pid} is a part of the kernel and has no memory of its own"
        )));
    }
    let environment = system::environment(pid).map_err(refused)?;

    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let linked = elf::symbols(&program, &|name| name == "hak_version").is_ok_and(|s| !s.defined.is_empty());
    let ours = mappings.iter().find(|mapping| library::is_ours(&mapping.path));
    match ours {
        Some(mapping) => {
            // Its root may be another than ours: a container's.
            let path = Path::new(&format!("/proc/{pid}/root"))
                .join(mapping.path.strip_prefix("/").unwrap_or(&mapping.path));
            let version = (!mapping.is_deleted).then(|| elf::library_version(&path)).flatten();
            let version = version.unwrap_or_else(|| "of unknown version".to_owned());
            findings
                .push(ok(format!("process {pid} has libhakmem.so {version} ({})", mapping.path.display())));
            if mapping.is_deleted {
                findings.push(note(
                    "the library's file was replaced or removed since the process started",
                    "restart it to use the new one",
                ));
            }
        }
        // Under another name.
        None if !linked && published_address(&Process::of(pid)).is_ok() => {
            findings.push(ok(format!("process {pid} has the library, in a file of another name")));
        }
        None if linked => findings.push(ok(format!("process {pid} is linked with hakmem"))),
        None => {
            findings.push(serious(
                format!("process {pid} runs without hakmem: the library is not mapped in it"),
                "start it with `hakmem run -- PROGRAM`",
            ));
            // Why, if the file says so.
            super::program::check(&std::fs::read_link(&program).unwrap_or(program), findings).ok();
        }
    }
    for mapping in &mappings {
        let path = mapping.path.to_string_lossy();
        if let Some(sanitizer) = sanitizer_of(&path) {
            findings
                .push(serious(format!("process {pid} has {sanitizer} ({path})"), "use a build without it"));
        } else if let Some(allocator) = allocator_of(&path) {
            findings
                .push(warning(format!("process {pid} has {allocator} as well ({path})"), "start it without"));
        }
    }
    environment_check(&environment, findings);
    memory_check(pid, findings);
    seccomp_check(pid, findings);
    Ok(())
}

/// What we may read of /proc is more than what we may read of its memory.
fn memory_check(pid: u32, findings: &mut Vec<Finding>) {
    if let Err(failure) = Process::open(pid) {
        let advice =
            "run `hakmem record`, `top` and `metrics` as root, or start it with `hakmem run --record FILE`";
        findings.push(warning(failure.line, advice));
    }
}

fn seccomp_check(pid: u32, findings: &mut Vec<Finding>) {
    match system::status_field(pid, "Seccomp").ok().flatten().as_deref() {
        Some("1") => findings.push(serious(
            format!("process {pid} is in strict seccomp mode: it may only read, write and exit"),
            "nothing; whatever it still needs must be allocated before",
        )),
        Some("2") => findings.push(note(
            format!("process {pid} has a seccomp filter; refused calls make the library keep more memory"),
            "allow madvise, process_madvise, mprotect, mmap, munmap and mremap in it",
        )),
        _ => {}
    }
}
