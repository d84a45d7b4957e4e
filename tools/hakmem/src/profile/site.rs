//! site.rs - a stack as one place in a program: the innermost frame that is neither an allocation function nor a
//! container's plumbing, and its callers.
//!
//! Rule: std::vector::push_back asks for memory, but nobody changes std::vector. Where a stack is plumbing all
//!       through, its innermost frame is the place.

use super::model::{Frame, Profile, Stack};
use std::collections::HashMap;

const PLUMBING_PREFIXES: [&str; 22] = [
    "std::",
    "__gnu_cxx::",
    "__cxxabi",
    "operator new",
    "void std::",
    "void* std::",
    "boost::",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "<std::",
    "hashbrown::",
    "<hashbrown::",
    "__rust_",
    "__rdl_",
    "__rg_",
    "PyMem_",
    "_PyMem_",
    "PyObject_Malloc",
    "g_malloc",
    "g_slice_",
];
const PLUMBING_NAMES: [&str; 48] = [
    "PyObject_Calloc",
    "PyObject_Realloc",
    "PyType_GenericAlloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawRealloc",
    "_PyObject_Calloc",
    "_PyObject_GC_Malloc",
    "_PyObject_GC_New",
    "_PyObject_GC_NewVar",
    "_PyObject_Malloc",
    "_PyObject_Realloc",
    "_PyType_AllocNoTrack",
    "__strdup",
    "__strndup",
    "aligned_alloc",
    "calloc",
    "gc_alloc",
    "malloc",
    "mallocWithAlarm",
    "memalign",
    "posix_memalign",
    "realloc",
    "reallocarray",
    "sqlite3DbMallocRawNN",
    "sqlite3Malloc",
    "sqlite3MemMalloc",
    "strdup",
    "strndup",
    "valloc",
    "xcalloc",
    "xmalloc",
    "xrealloc",
    "xstrdup",
    "zcalloc",
    "zcalloc_num",
    "zcalloc_usable",
    "zmalloc",
    "zmalloc_usable",
    "zrealloc",
    "zrealloc_usable",
    "zstrdup",
    "ztrycalloc_usable",
    "ztrymalloc",
    "ztrymalloc_usable",
    "ztrymalloc_usable_internal",
    "ztryrealloc_usable",
    "ztryrealloc_usable_internal",
];

fn is_plumbing(frame: &Frame) -> bool {
    let name = frame.function.name.as_str();
    // "std::vector<..>::push_back" and, with its type in front, "int* std::__uninitialized_copy<..>".
    let head = name.split(['(', '<']).next().unwrap_or_default();
    let last_word = head.rsplit(' ').next().unwrap_or(head);
    PLUMBING_NAMES.contains(&name)
        || PLUMBING_PREFIXES.iter().any(|prefix| name.starts_with(prefix) || last_word.starts_with(prefix))
}

/// A place, and the stacks that end there.
pub struct Site {
    pub name: String, // "function (file:line)"
    pub stacks: Vec<u32>,
}

/// All stacks by place; the largest by `size` first within each.
pub fn sites(profile: &Profile, size: impl Fn(&Stack) -> u64) -> Vec<Site> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut sites: Vec<Site> = Vec::new();
    for (at, stack) in profile.stacks.iter().enumerate() {
        let name = place(profile, stack);
        let site = *places.entry(name.clone()).or_insert_with(|| {
            sites.push(Site { name, stacks: Vec::new() });
            sites.len() - 1
        });
        sites[site].stacks.push(at as u32);
    }
    for site in &mut sites {
        site.stacks.sort_by_key(|at| std::cmp::Reverse(size(&profile.stacks[*at as usize])));
    }
    sites
}

/// Which of a stack's frames that is, from the innermost.
pub fn own_frame(profile: &Profile, stack: &Stack) -> Option<usize> {
    let found = profile.frames(stack).position(|frame| !is_plumbing(&frame));
    found.or_else(|| profile.frames(stack).next().map(|_| 0))
}

pub fn place(profile: &Profile, stack: &Stack) -> String {
    match own_frame(profile, stack).and_then(|at| profile.frames(stack).nth(at)) {
        Some(frame) => shown(&frame),
        None => "an unknown place".to_owned(),
    }
}

/// The callers of the place, innermost first, `count` at most, and below it what it called.
pub fn callers(profile: &Profile, stack: &Stack, count: usize) -> Vec<String> {
    let at = own_frame(profile, stack).unwrap_or(0);
    profile
        .frames(stack)
        .skip(at + 1)
        .filter(|frame| !is_plumbing(frame))
        .take(count)
        .map(|f| shown(&f))
        .collect()
}

pub fn shown(frame: &Frame) -> String {
    const NAME_MAX: usize = 100;
    let name = &frame.function.name;
    let name = match name.chars().count() > NAME_MAX {
        true => format!("{}...", name.chars().take(NAME_MAX).collect::<String>()),
        false => name.clone(),
    };
    match frame.place() {
        // A name made of its module says it already.
        place if place.is_empty() || name.starts_with(&place) => name,
        place => format!("{name} ({place})"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_place_is_the_first_frame_that_somebody_wrote() {
        let profile = sample::profile();
        // std::vector::resize, inlined into main.
        assert_eq!(place(&profile, &profile.stacks[2]), "main (main.cc:20)");
        assert_eq!(place(&profile, &profile.stacks[0]), "Node::make (node.h:7)");
        assert_eq!(
            callers(&profile, &profile.stacks[0], 2),
            ["Parser::parse(std::string const&) (parser.cc:88)", "main (main.cc:10)"]
        );
        assert_eq!(sites(&profile, |stack| stack.live.bytes).len(), 3);
    }
}
