//! library.rs - where libhakmem.so is on this machine, and how it gets into a program.
//!
//! Order: $HAKMEM_LIB; beside the command; ../lib of the command's folder; the system's library folders.

use crate::text::{self, Failure};
use crate::{elf, shared_objects, system};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

pub const VARIABLE: &str = "HAKMEM_LIB";
const NAMES: [&str; 2] = ["libhakmem.so", "libhakmem.so.0"];

pub struct Library {
    pub path: PathBuf,
}

impl Library {
    /// "0.1.0", or what to say instead. Reads the file: not for every start.
    pub fn version_text(&self) -> String {
        elf::library_version(&self.path).unwrap_or_else(|| "of unknown version".to_owned())
    }
}

/// The library, or one line that says where it was looked for.
pub fn find() -> Result<Library, Failure> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let is_named = named.is_some();
    let path = match named {
        Some(named) => file_at(Path::new(&named)).map_err(|reason| {
            Failure::start(format!("{VARIABLE} names {}, which {reason}", text::quote(&named)))
        })?,
        None => places().into_iter().find_map(|place| file_at(&place).ok()).ok_or_else(|| {
            Failure::start(format!(
                "libhakmem.so is neither beside this command nor in ../lib of its folder nor in the system's \
                 library folders; name it in {VARIABLE}"
            ))
        })?,
    };
    match elf::open(&path) {
        Ok(elf::File::Elf(headers)) if headers.is_program => {}
        Ok(_) => return Err(Failure::start(format!("{} is no shared library", text::quote(&path)))),
        Err(reason) => return Err(Failure::start(reason)),
    }
    // Whatever the file's name is. What lies beside this command was not asked for by name, and is not read for every start.
    if is_named
        && !elf::symbols(&path, &|name| name == "hak_version").is_ok_and(|found| !found.defined.is_empty())
    {
        return Err(Failure::start(format!(
            "{VARIABLE} names {}, which is not this library",
            text::quote(&path)
        )));
    }
    // The loader takes both as separators, and has no way to quote them.
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        let path = text::quote(&path);
        return Err(Failure::start(format!("{path} cannot be preloaded: its path has a blank or a colon")));
    }
    Ok(Library { path })
}

fn file_at(path: &Path) -> Result<PathBuf, String> {
    let real = fs::canonicalize(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "is not there".to_owned(),
        _ => format!("cannot be used: {}", system::error_text(&error)),
    })?;
    if real.is_file() { Ok(real) } else { Err("is not a file".to_owned()) }
}

fn places() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(own) = system::own_path().as_deref().and_then(Path::parent) {
        folders.push(own.to_owned());
        let lib = own.join("../lib");
        folders.push(lib.join(shared_objects::multiarch_folder()));
        folders.push(lib);
        folders.push(own.join("../lib64"));
    }
    folders.extend(shared_objects::system_folders());
    folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name))).collect()
}

/// Whether a path is one of this library's files, by its name.
pub fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(b"libhakmem.so").is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// LD_PRELOAD with the library first and everything that stood there before after it.
pub fn preload_value(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let before = before.unwrap_or_default().as_bytes();
    for entry in before.split(|byte| b" :\t".contains(byte)).filter(|entry| !entry.is_empty()) {
        let entry = OsStr::from_bytes(entry);
        if entry != library.as_os_str() {
            value.push(":");
            value.push(entry);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/l/libhakmem.so");
        let value = |before: &str| preload_value(library, Some(OsStr::new(before)));
        assert_eq!(preload_value(library, None), "/l/libhakmem.so");
        assert_eq!(value("a.so b.so:/l/libhakmem.so:"), "/l/libhakmem.so:a.so:b.so");
    }

    #[test]
    fn our_files_are_known_by_name() {
        for (name, ours) in [
            ("/a/libhakmem.so", true),
            ("libhakmem.so.0.1.0", true),
            ("/a/libhakmem.sox", false),
            ("/libhakmem.so/x", false),
            ("", false),
        ] {
            assert_eq!(is_ours(Path::new(name)), ours, "{name}");
        }
    }
}
