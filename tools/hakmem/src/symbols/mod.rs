//! symbols/ - names for addresses: functions, inlined ones too, files and lines.
//!
//! Order:    the file's own tables; a separate debug file for what it has not (debug_files.rs). Each file is opened
//!           once, when the first address in it is asked for.
//! Rule:     an address is a return address: the call stands before it, so address - 1 is looked up.
//! Rule:     a symbol counts only inside its size. The nearest exported name in a stripped library is a guess, and
//!           a wrong one says more harm than none.
//! Measured: 60,000 addresses of a Rust program with 90 MB of DWARF: docs/seeing.md.

mod debug_files;
mod demangle;
mod image;
pub mod perf_map;

pub use demangle::demangled;

use crate::process;
use image::Image;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A file mapped in the process that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapped {
    pub path: String,     // as the process has it
    pub file: PathBuf,    // where it can be read here; empty: nowhere
    pub build_id: String, // what the process has; empty: not known
    pub start: u64,
    pub end: u64,
    pub offset: u64, // of `start` in the file
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    pub name: String,   // demangled
    pub symbol: String, // as the file has it
    pub file: String,
    pub line: u32,
}

/// What is known about one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    pub build_id: String,
    pub has_symbols: bool,
    pub has_lines: bool,
    pub debug_file: String,
}

pub struct Symbols {
    images: HashMap<PathBuf, Option<Image>>,
}

impl Symbols {
    pub fn new() -> Symbols {
        Symbols { images: HashMap::new() }
    }

    /// The frames at a return address, innermost first; empty: no name is known, or there is no time to look for it.
    pub fn names(&mut self, mapped: &Mapped, address: u64) -> Vec<Named> {
        if process::is_hurried() {
            return Vec::new();
        }
        let at = (address - 1).wrapping_sub(mapped.start).wrapping_add(mapped.offset);
        match self.image(mapped) {
            Some(image) => image.names(at),
            None => Vec::new(),
        }
    }

    pub fn quality(&mut self, mapped: &Mapped) -> Quality {
        let build_id = mapped.build_id.clone();
        if process::is_hurried() && !self.images.contains_key(&key(mapped)) {
            return Quality { build_id, ..Quality::default() };
        }
        match self.image(mapped) {
            Some(image) => image.quality(),
            None => Quality { build_id, ..Quality::default() },
        }
    }

    fn image(&mut self, mapped: &Mapped) -> Option<&Image> {
        let opened = self.images.entry(key(mapped)).or_insert_with(|| Image::open(mapped));
        opened.as_ref()
    }
}

/// Two roots may hold different files under one name.
fn key(mapped: &Mapped) -> PathBuf {
    let path = if mapped.file.as_os_str().is_empty() { Path::new(&mapped.path) } else { &mapped.file };
    let mut key = path.as_os_str().to_owned();
    key.push("\0");
    key.push(&mapped.build_id);
    PathBuf::from(key)
}
