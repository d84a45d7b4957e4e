//! check/ - the doctor's rules: what keeps the library from working well, on a machine (machine.rs), in a
//! program's file (program.rs), in a running process (process.rs).
//!
//! Serious means that the library does not get into the program or that the program may not run with it.
//! Warnings cost something that a user would notice. Notes are worth knowing.

pub mod machine;
pub mod process;
pub mod program;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Serious,
    Warning,
    Note,
    Ok,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub what: String,
    pub advice: String, // empty: nothing to do
}

pub fn serious(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { severity: Severity::Serious, what: what.into(), advice: advice.into() }
}

pub fn warning(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, what: what.into(), advice: advice.into() }
}

pub fn note(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { severity: Severity::Note, what: what.into(), advice: advice.into() }
}

pub fn ok(what: impl Into<String>) -> Finding {
    Finding { severity: Severity::Ok, what: what.into(), advice: String::new() }
}

/// Other allocators, by the names of their shared libraries.
pub fn allocator_of(library: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 14] = [
        ("libjemalloc", "jemalloc"),
        ("libtcmalloc", "tcmalloc"),
        ("libmimalloc", "mimalloc"),
        ("libsnmalloc", "snmalloc"),
        ("librpmalloc", "rpmalloc"),
        ("libtbbmalloc_proxy", "tbbmalloc"),
        ("libhoard", "Hoard"),
        ("libscudo", "Scudo"),
        ("libhardened_malloc", "hardened_malloc"),
        ("libc_malloc_debug", "glibc's malloc debugging"),
        ("libdmalloc", "dmalloc"),
        ("libefence", "Electric Fence"),
        ("libheaptrack_preload", "heaptrack"),
        ("libmemusage", "memusage"),
    ];
    name_find(&NAMES, library)
}

pub fn sanitizer_of(library: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 8] = [
        ("libasan", "AddressSanitizer"),
        ("libhwasan", "HWAddressSanitizer"),
        ("libtsan", "ThreadSanitizer"),
        ("liblsan", "LeakSanitizer"),
        ("libclang_rt.asan", "AddressSanitizer"),
        ("libclang_rt.hwasan", "HWAddressSanitizer"),
        ("libclang_rt.tsan", "ThreadSanitizer"),
        ("libclang_rt.msan", "MemorySanitizer"),
    ];
    name_find(&NAMES, library)
}

/// The entry whose name the file's name starts with, up to a character that no name goes on with.
fn name_find(names: &[(&str, &'static str)], library: &str) -> Option<&'static str> {
    let file = library.rsplit('/').next().unwrap_or(library);
    let fits = |name: &str| file.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-', '_']));
    names.iter().find(|(name, _)| fits(name)).map(|(_, meaning)| *meaning)
}

/// What the environment of a program holds that concerns the library.
pub fn environment_check(environment: &[(String, String)], findings: &mut Vec<Finding>) {
    for (name, value) in environment {
        match name.as_str() {
            "LD_PRELOAD" => preloads_check(&crate::system::preloads_split(value), "LD_PRELOAD", findings),
            "GLIBC_TUNABLES" => {
                let tunables: Vec<&str> =
                    value.split(':').filter(|t| t.starts_with("glibc.malloc.")).collect();
                if !tunables.is_empty() {
                    let what = format!(
                        "GLIBC_TUNABLES sets {}, which only glibc's malloc reads",
                        tunables.join(", ")
                    );
                    findings.push(note(what, "unset it, or see `hakmem options`"));
                }
            }
            "PYTHONMALLOC" if value == "debug" || value.ends_with("_debug") => {
                let what = format!("PYTHONMALLOC={value} makes Python fill and check every block itself");
                findings.push(note(what, "unset it when you measure"));
            }
            crate::library::VARIABLE => {}
            _ if GLIBC_VARIABLES.contains(&name.as_str()) => {
                findings.push(note(
                    format!("{name} is set, which only glibc's malloc reads"),
                    "unset it, or see `hakmem options`",
                ));
            }
            _ => findings.extend(
                crate::options::variable_refused(name, value)
                    .map(|what| warning(what, "correct it; `hakmem options` lists them")),
            ),
        }
    }
}

/// From glibc's manual, "Memory Allocation Tunables" and "mallopt".
const GLIBC_VARIABLES: [&str; 9] = [
    "MALLOC_ARENA_MAX",
    "MALLOC_ARENA_TEST",
    "MALLOC_CHECK_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TCACHE_COUNT",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
];

pub fn preloads_check(preloads: &[String], place: &str, findings: &mut Vec<Finding>) {
    for library in preloads {
        if crate::library::is_ours(std::path::Path::new(library)) {
            continue;
        }
        if let Some(sanitizer) = sanitizer_of(library) {
            findings.push(serious(
                format!("{place} holds {library}: {sanitizer} brings its own malloc and must come first"),
                format!("take it out of {place}"),
            ));
        } else if let Some(allocator) = allocator_of(library) {
            findings.push(warning(
                format!(
                    "{place} holds {library}: {allocator} is loaded beside the library and only costs memory"
                ),
                format!("take it out of {place}"),
            ));
        } else {
            findings.push(note(
                format!("{place} holds {library}, which is loaded after the library"),
                "nothing, unless it replaces malloc",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_and_sanitizers_are_known_by_their_files() {
        assert_eq!(allocator_of("/usr/lib/libjemalloc.so.2"), Some("jemalloc"));
        assert_eq!(allocator_of("libtcmalloc_minimal.so.4"), Some("tcmalloc"));
        assert_eq!(allocator_of("libmimalloc-secure.so"), Some("mimalloc"));
        assert_eq!(allocator_of("libhoardings.so"), None);
        assert_eq!(sanitizer_of("libasan.so.8"), Some("AddressSanitizer"));
        assert_eq!(sanitizer_of("libclang_rt.asan-x86_64.so"), Some("AddressSanitizer"));
        assert_eq!(sanitizer_of("libubsan.so.1"), None);
    }

    #[test]
    fn an_environment_is_judged_variable_by_variable() {
        let pairs = [
            ("PATH", "/bin"),
            ("LD_PRELOAD", "/x/libhakmem.so /y/libasan.so.8:libjemalloc.so.2 libother.so"),
            ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.cpu.x=y"),
            ("MALLOC_ARENA_MAX", "2"),
            ("MALLOC_TRACES_OF_MINE", "1"),
            ("HAKMEM_STATZ", "1"),
            ("HAKMEM_STATS", "1"),
            ("HAKMEM_LIB", "/x"),
        ];
        let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut findings = Vec::new();
        environment_check(&environment, &mut findings);
        let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
        use Severity::{Note, Serious, Warning};
        assert_eq!(severities, [Serious, Warning, Note, Note, Note, Warning]);
    }
}
