//! shared_objects.rs - which shared libraries the loader would give a program, without running it.
//!
//! Owns:     the search: rpath, LD_LIBRARY_PATH, runpath, the folders of /etc/ld.so.conf, the system's own.
//! Rejected: ldd: it runs the program's loader, and the doctor is asked about programs that one may not
//!           trust.
//! Bound:    what dlopen loads later cannot be known here; `doctor -p` sees it.

use crate::elf::{self, File, Headers};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::{env, fs};

pub struct SharedObject {
    pub name: String,
    pub path: Option<PathBuf>, // None: not found
    pub needed_by: String,
}

pub fn multiarch_folder() -> String {
    format!("{}-linux-gnu", env::consts::ARCH)
}

/// The loader's folders on this machine, in its order, those that exist.
pub fn system_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    configured_read(Path::new("/etc/ld.so.conf"), 0, &mut folders);
    let multiarch = multiarch_folder();
    for folder in ["/usr/local/lib", "/lib", "/usr/lib"] {
        folders.push(Path::new(folder).join(&multiarch));
    }
    folders.extend(["/lib64", "/usr/lib64", "/usr/local/lib", "/lib", "/usr/lib"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

fn configured_read(path: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    const DEPTH_MAX: usize = 4; // includes of includes; a loop ends here
    let Ok(text) = fs::read_to_string(path) else { return };
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(pattern) = line.strip_prefix("include").map(str::trim) {
            if depth < DEPTH_MAX {
                files_matching(Path::new(pattern))
                    .iter()
                    .for_each(|file| configured_read(file, depth + 1, folders));
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// The files of a pattern whose last part may hold one star: what ld.so.conf uses.
fn files_matching(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let (before, after) = name.split_once('*').unwrap_or((name, ""));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            entry.file_name().to_str().is_some_and(|n| n.starts_with(before) && n.ends_with(after))
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

/// Every shared library of a program, its own first, then theirs.
pub fn all_of(program: &Path, headers: &Headers) -> Vec<SharedObject> {
    const COUNT_MAX: usize = 4096; // the largest desktop programs have some 300
    let from_environment: Vec<PathBuf> = match env::var_os("LD_LIBRARY_PATH") {
        Some(value) => env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect(),
        None => Vec::new(),
    };
    let system = system_folders();
    let mut found: Vec<SharedObject> = Vec::new();
    let mut names = BTreeSet::new();
    let mut waiting = VecDeque::from([(program.to_owned(), headers.clone(), Vec::new())]);
    while let Some((user, headers, of_users)) = waiting.pop_front() {
        let own = |entries: &[String]| origin_replaced(entries, &user);
        let runpath = own(&headers.runpath);
        // An rpath is for the libraries of libraries as well, a runpath for its own; who has one reads no rpath.
        let own_rpath = if runpath.is_empty() { own(&headers.rpath) } else { Vec::new() };
        let rpaths = [own_rpath, of_users].concat();
        let rpath = if runpath.is_empty() { rpaths.as_slice() } else { &[] };
        for name in &headers.needed {
            if found.len() == COUNT_MAX || !names.insert(name.clone()) {
                continue;
            }
            let folders = rpath.iter().chain(&from_environment).chain(&runpath).chain(&system);
            let candidates: Vec<PathBuf> = match name.contains('/') {
                true => vec![PathBuf::from(name)],
                false => folders.map(|folder| folder.join(name)).collect(),
            };
            // A library of another machine in the way is skipped, as the loader does.
            let fitting = candidates.into_iter().find_map(|path| match elf::open(&path) {
                Ok(File::Elf(theirs))
                    if theirs.machine == headers.machine && theirs.is_64 == headers.is_64 =>
                {
                    Some((path, theirs))
                }
                _ => None,
            });
            let needed_by = user.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = fitting.as_ref().map(|(path, _)| path.clone());
            found.push(SharedObject { name: name.clone(), path, needed_by });
            waiting.extend(fitting.map(|(path, theirs)| (path, theirs, rpaths.clone())));
        }
    }
    found
}

fn origin_replaced(entries: &[String], user: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(user).unwrap_or_else(|_| user.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let entries = entries.iter().filter(|entry| !entry.is_empty());
    entries
        .map(|entry| PathBuf::from(entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_a_libc_that_is_found() {
        let path = env::current_exe().unwrap();
        let File::Elf(headers) = elf::open(&path).unwrap() else { panic!("not ELF") };
        let all = all_of(&path, &headers);
        let libc = all.iter().find(|object| object.name.starts_with("libc.so")).unwrap();
        assert!(libc.path.is_some());
    }

    #[test]
    fn origin_is_the_users_folder() {
        let entries = ["$ORIGIN/../lib".to_owned(), "${ORIGIN}".to_owned(), String::new()];
        let folders = origin_replaced(&entries, Path::new("/nowhere/at/all"));
        assert_eq!(folders, [PathBuf::from("/nowhere/at/../lib"), PathBuf::from("/nowhere/at")]);
    }
}
