//! allocators.rs - who takes part: names on the command line become shared objects that can be preloaded.
//!
//! Owns:      the grammar of --with, the copies and the digests. What there is, is peers.rs's knowledge.
//! Invariant: an entry's name is unique among those that take part, and its files were there when it was chosen.
//! Copies:    what may be rebuilt while we measure is copied first: HAKMEM, the peers we built, and files named by
//!            --with.

use super::peers::Known;
pub use super::peers::{GLIBC, HAKMEM};
use super::results::Allocator;
use crate::elf::{self, File};
use crate::shared_objects;
use crate::system::error_text;
use crate::text::{self, Failure};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// One that takes part.
#[derive(Debug)]
pub struct Entry {
    pub preload: Vec<PathBuf>,
    pub about: Allocator,
}

impl Entry {
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// The value of LD_PRELOAD.
    pub fn preload_value(&self) -> Option<String> {
        let paths: Vec<String> = self.preload.iter().map(|path| path.display().to_string()).collect();
        (!paths.is_empty()).then(|| paths.join(":"))
    }
}

/// HAKMEM and, of `with`, each entry: a known name, NAME=KNOWN, or NAME=FILE (or FILE:FILE, to preload several, of
/// which each may be a known name too). Without `with`, all that are at hand.
pub fn choose(all: &[Known], with: Option<&[String]>) -> Result<Vec<Known>, Failure> {
    let own = by_name(all, HAKMEM)?;
    let Some(with) = with else {
        let at_hand = |known: &&Known| known.missing.is_none() && known.only_named.is_none();
        return Ok(all.iter().filter(at_hand).cloned().collect());
    };
    let mut chosen: Vec<Known> = Vec::new();
    for entry in with.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty()) {
        let known = match entry.split_once('=') {
            None if entry.contains('/') => {
                let line = format!("--with {}: give the file a name: NAME={entry}", text::quote(entry));
                return Err(Failure::usage(line));
            }
            None => by_name(all, entry)?,
            Some((name, what)) => named(all, name, what)?,
        };
        if chosen.iter().any(|before| before.name == known.name) {
            return Err(Failure::usage(format!(
                "--with has {} twice; a second entry needs a name of its own: {}2={}",
                known.name, known.name, known.name
            )));
        }
        chosen.push(known);
    }
    if !chosen.iter().any(|known| known.name == HAKMEM) {
        chosen.insert(0, own);
    }
    Ok(chosen)
}

fn by_name(all: &[Known], name: &str) -> Result<Known, Failure> {
    let Some(known) = all.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        let near = text::nearest(names.iter().copied(), name);
        let near = near.map_or(".".to_owned(), |near| format!("; did you mean {near}?"));
        return Err(Failure::usage(format!(
            "there is no allocator {}{near} Known: {}, and NAME=FILE",
            text::quote(name),
            names.join(", ")
        )));
    };
    match &known.missing {
        Some(how) if name == HAKMEM => Err(Failure::start(how.clone())),
        Some(how) => Err(Failure::usage(format!("{name} is not at hand: {how}"))),
        None => Ok(known.clone()),
    }
}

fn named(all: &[Known], name: &str, what: &str) -> Result<Known, Failure> {
    let refused = |reason: String| {
        Failure::usage(format!("--with {}: {reason}", text::quote(&format!("{name}={what}"))))
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(refused("the name is letters, digits, '-', '_', '.' and '+'".to_owned()));
    }
    if !what.contains('/') && !what.contains(':') {
        return Ok(Known { name: name.to_owned(), ..by_name(all, what)? });
    }
    let mut whole = Known {
        name: name.to_owned(),
        source: "named by --with".to_owned(),
        may_change: true,
        ..Known::default()
    };
    let mut has_malloc = false;
    for part in what.split(':') {
        if !part.contains('/') {
            let known = by_name(all, part)?;
            whole.version = known.version;
            has_malloc |= !known.preload.is_empty();
            whole.preload.extend(known.preload);
            whole.environment.extend(known.environment);
            continue;
        }
        let path = fs::canonicalize(part).map_err(|error| refused(error_text(&error)))?;
        match elf::open(&path) {
            Ok(File::Elf(headers)) if headers.is_program => {}
            _ => return Err(refused("no shared library".to_owned())),
        }
        let symbols = elf::symbols(&path, &|name| name == "malloc").map_err(refused)?;
        has_malloc |= symbols.exported.contains("malloc");
        whole.preload.push(path);
    }
    if !has_malloc {
        return Err(refused("exports no malloc: the program would run with the C library's own".to_owned()));
    }
    if whole.version.is_empty() {
        let own = whole.preload.first().and_then(|path| elf::library_version(path));
        whole.version = own.unwrap_or_else(|| "of unknown version".to_owned());
    }
    Ok(whole)
}

/// Makes the copies and the digests. `scratch` is a folder of ours.
pub fn prepare(chosen: Vec<Known>, scratch: &Path) -> Result<Vec<Entry>, Failure> {
    chosen.into_iter().map(|known| entry_make(known, scratch)).collect()
}

fn entry_make(known: Known, scratch: &Path) -> Result<Entry, Failure> {
    let trouble = |path: &Path, reason: String| Failure::start(format!("{}: {reason}", text::quote(path)));
    let shown = known.preload.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let mut preload = Vec::new();
    let mut digest = Sha256::new();
    for path in &known.preload {
        let bytes = fs::read(path).map_err(|error| trouble(path, error_text(&error)))?;
        digest.update(&bytes);
        let used = match known.may_change && !depends_on_its_place(path) {
            false => path.clone(),
            true => {
                let folder = scratch.join(&known.name);
                let copy = folder.join(path.file_name().unwrap_or_default());
                let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&copy, &bytes));
                written.map_err(|error| trouble(&copy, error_text(&error)))?;
                copy
            }
        };
        // The loader takes both as separators, and has no way to quote them.
        if used.display().to_string().contains([' ', ':', '\t', '\n']) {
            return Err(trouble(&used, "cannot be preloaded: its path has a blank or a colon".to_owned()));
        }
        preload.push(used);
    }
    if known.preload.is_empty() {
        let folders = shared_objects::system_folders();
        let libc = folders.iter().find_map(|folder| fs::read(folder.join("libc.so.6")).ok());
        digest.update(libc.unwrap_or_default());
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let about = Allocator {
        name: known.name,
        version: known.version,
        source: known.source,
        path: (!shown.is_empty()).then_some(shown),
        sha256: Some(sha256),
        options: known.options,
        mode: known.mode,
        environment: known.environment,
    };
    Ok(Entry { preload, about })
}

/// A library that finds others by its own place cannot be copied away from it.
fn depends_on_its_place(path: &Path) -> bool {
    let Ok(File::Elf(headers)) = elf::open(path) else { return false };
    headers.rpath.iter().chain(&headers.runpath).any(|entry| entry.contains("ORIGIN"))
}
