//! machine.rs - what the kernel, its settings and the limits of a process mean for the library.
//!
//! Every rule here answers to a fallback of the library (ARCHITECTURE.md): none of them stops it, but those
//! that make programs fail which ran before are serious.

use super::{Finding, note, ok, serious, warning};
use crate::groups;
use crate::system;
use crate::text::{bytes, count};

const MIB: u64 = 1 << 20;

/// `process` is whose limits count: "self", or a process's number.
pub fn check(process: &str, findings: &mut Vec<Finding>) {
    kernel_check(findings);
    settings_check(findings);
    findings.extend(ptrace_finding(system::ptrace_scope(), system::user_id() == 0));
    limits_check(process, findings);
    super::preloads_check(&system::system_preloads(), "/etc/ld.so.preload", findings);
}

fn kernel_check(findings: &mut Vec<Finding>) {
    let release = system::kernel_release().unwrap_or_else(|| "of unknown release".to_owned());
    let mut missing = Vec::new();
    if !system::can_return_pages() {
        missing.push("madvise (pages cannot be returned: memory stays at its peak)");
    }
    if !system::can_return_pages_in_bulk() {
        missing.push("process_madvise for oneself (each run of pages costs a call; Linux 6.13 has it)");
    }
    if !system::can_wipe_on_fork() {
        missing.push("MADV_WIPEONFORK (children of a raw clone are not recognised; Linux 4.14 has it)");
    }
    if !system::can_move_pages() {
        missing.push("MREMAP_DONTUNMAP (growing blocks are copied, not moved; Linux 5.7 has it)");
    }
    if missing.is_empty() {
        findings.push(ok(format!("kernel {release} has every call that the library likes to use")));
    }
    for call in missing {
        findings.push(note(
            format!("kernel {release} here lacks {call}"),
            "a newer kernel, or a seccomp filter that allows it",
        ));
    }
    let page_bytes = system::page_bytes();
    if page_bytes != 4096 {
        let what = format!("pages are of {}: memory goes back in coarser steps", bytes(page_bytes));
        findings.push(note(what, "nothing, the library reads it at run time"));
    }
}

fn settings_check(findings: &mut Vec<Finding>) {
    match system::huge_page_setting().as_deref() {
        Some("always") => findings.push(note(
            "transparent huge pages are set to always: the library refuses them until memory is dense and old",
            "nothing; madvise in /sys/kernel/mm/transparent_hugepage/enabled keeps the rest of a program small too",
        )),
        Some("never") => findings.push(note(
            "transparent huge pages are set to never: large, dense heaps get none",
            "write madvise to /sys/kernel/mm/transparent_hugepage/enabled",
        )),
        _ => {}
    }
    if system::overcommit_mode() == Some(2) {
        findings.push(warning(
            "overcommit_memory is 2: the kernel counts committed memory, and malloc fails at its limit, not before \
             memory is short",
            "sysctl vm.overcommit_memory=0 unless you need that strictness",
        ));
    }
    // The library keeps its own mappings under 8,192; 65,530 is the kernel's default.
    match system::mapping_count_max() {
        Some(limit) if limit < 16384 => findings.push(warning(
            format!("max_map_count is {}, and a program may run out of mappings", count(limit)),
            "sysctl vm.max_map_count=65530",
        )),
        Some(limit) if limit < 65530 => findings.push(note(
            format!("max_map_count is {}, below the kernel's default", count(limit)),
            "sysctl vm.max_map_count=65530 for programs with many mappings of their own",
        )),
        _ => {}
    }
}

/// Whether `hakmem record`, `top` and `metrics` may look at running processes.
pub fn ptrace_finding(scope: Option<u64>, is_root: bool) -> Option<Finding> {
    let advice = "run them as root, or sysctl kernel.yama.ptrace_scope=0";
    match (scope?, is_root) {
        (0, _) | (1 | 2, true) => None,
        (1, false) => Some(note(
            "kernel.yama.ptrace_scope is 1: `hakmem record`, `top` and `metrics` may not look at processes that you \
             started elsewhere",
            advice,
        )),
        (2, false) => Some(note(
            "kernel.yama.ptrace_scope is 2: `hakmem record`, `top` and `metrics` are for root alone",
            advice,
        )),
        (scope, _) => Some(note(
            format!(
                "kernel.yama.ptrace_scope is {scope}: `hakmem record`, `top` and `metrics` may not look at any process"
            ),
            "`hakmem run --record FILE -- PROGRAM` needs no such right; the setting can be changed at boot only",
        )),
    }
}

fn limits_check(process: &str, findings: &mut Vec<Finding>) {
    match system::limit(process, "Max address space") {
        Some(limit) if limit < 64 * MIB => findings.push(serious(
            format!("address space is limited to {} (ulimit -v): programs may not even start", bytes(limit)),
            "ulimit -v unlimited; to bound memory use a control group (systemd-run -p MemoryMax=...)",
        )),
        Some(limit) => findings.push(warning(
            format!(
                "address space is limited to {} (ulimit -v): memory is mapped piece by piece, and malloc fails where \
                 space is short, not memory",
                bytes(limit)
            ),
            "ulimit -v unlimited; to bound memory use a control group (systemd-run -p MemoryMax=...)",
        )),
        None => {}
    }
    if let Some(limit) = system::limit(process, "Max data size") {
        findings.push(warning(
            format!("writable memory is limited to {} (ulimit -d)", bytes(limit)),
            "ulimit -d unlimited; to bound memory use a control group (systemd-run -p MemoryMax=...)",
        ));
    }
    if let Some((limit, file)) = groups::memory(process) {
        let what = format!(
            "a control group limits memory to {} ({}): HAKMEM_LIMIT_SOFT_MB is {} where nobody set it",
            bytes(limit),
            file.display(),
            (limit / 10 * 9 / MIB).max(1)
        );
        findings.push(note(
            what,
            "nothing; free memory goes back as that comes near (HAKMEM_CGROUP=0: it does not)",
        ));
    }
    if let Some((allowed, file)) = groups::processors(process) {
        let what = format!("a control group allows the time of {allowed} processors ({})", file.display());
        findings.push(note(what, "nothing; what the library does by their number it does by this one"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_look_at_processes_is_said_where_it_is_forbidden() {
        let what = |scope, is_root| ptrace_finding(scope, is_root).map(|finding| finding.what);
        for (scope, is_root) in [(None, false), (Some(0), false), (Some(1), true), (Some(2), true)] {
            assert_eq!(what(scope, is_root), None);
        }
        for (scope, is_root) in [(1, false), (2, false), (3, true)] {
            assert!(
                what(Some(scope), is_root)
                    .unwrap()
                    .starts_with(&format!("kernel.yama.ptrace_scope is {scope}"))
            );
        }
    }
}
