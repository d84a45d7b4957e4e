//! policy/ - what a program has taught the allocator: the file of docs/policy.md, as the tool sees it.
//!
//! file    read as strictly as the library reads it, written as it writes it
//! merge   several files of one program, one file
//! learnt  what was learnt, from a file, a report or a living process; words: the same, for people
//!
//! Rule: a file is believed whole or not at all, and whatever it holds, the answer is one line.

pub mod file;
pub mod learnt;
pub mod live;
pub mod merge;
#[cfg(test)]
mod tests;
pub mod words;

use crate::output::path_with;
use crate::system::{self, error_text};
use crate::text::{self, Failure};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub const VERSION: u64 = 1;
pub const LINE_BYTES_MAX: usize = 256;
pub const FILE_BYTES_MAX: u64 = 512 << 10;
pub const ROWS_MAX: usize = 64;
pub const SITES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Off,
    Learn,
    Canary,
    Frozen,
}

impl Stage {
    pub const ALL: [Stage; 4] = [Stage::Off, Stage::Learn, Stage::Canary, Stage::Frozen];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Off => "off",
            Stage::Learn => "learn",
            Stage::Canary => "canary",
            Stage::Frozen => "frozen",
        }
    }

    pub fn of(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// A number of millionths, its standard error, and the duels behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    pub millionths: i64,
    pub error: u64,
    pub duels: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    In,
    Aside,
    Out,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rating {
    pub strategy: String,
    pub elo: i64,
    pub error: u64,
    pub duels: u64,
    pub standing: Standing,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub ms: u64,
    pub from: Stage,
    pub to: Stage,
    pub reason: String,
    pub numbers: [i64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pool,
    Keep,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    pub module: u64,
    pub offset: u64,
    pub height: u64,
    pub class: u64,
    pub kind: Kind,
    pub numbers: [u64; 3],
}

/// Of one class, the slabs that are known to be filled, and those that the last run filled; of 0 bytes, large blocks' granules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filled {
    pub block_bytes: u64,
    pub slabs: u64,
    pub last: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub build_id: String,
    pub program: String,
    pub library: String,
    pub runs: u64,
    pub stage: Stage,
    pub strategy: String,
    pub gain: Option<Gain>,
    /// The standard deviation of a duel in millionths, duels behind it.
    pub noise: Option<(u64, u64)>,
    /// How often the bound on free memory is halved, runs behind it.
    pub spare: Option<(u64, u64)>,
    /// How often a run filled clearly less than was known; how often in a row huge pages were dear.
    pub fell: u64,
    pub dear: u64,
    pub filled: Vec<Filled>,
    pub knobs: Vec<(String, u64)>,
    pub ratings: Vec<Rating>,
    pub history: Vec<Change>,
    pub sites: Vec<Site>,
}

/// Why the library could not write a policy to `path`, as far as it can be known before the program runs: it puts a new
/// file beside it, and renames that. A folder that depends on the process is not looked at.
pub fn write_obstacle(path: &Path) -> Option<String> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        return Some("it is not a regular file".to_owned());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.as_os_str().as_bytes().contains(&b'%') {
        return None;
    }
    system::write_refusal(folder).map(|error| error_text(&error))
}

/// The file that HAKMEM_POLICY names in a process's environment, which is at `root` seen from here, and its folder at `folder`.
pub fn read_named(
    environment: &[(String, String)],
    pid: u32,
    program: &str,
    (root, folder): (&Path, &Path),
) -> Option<Policy> {
    let (_, named) = environment.iter().find(|(name, value)| name == "HAKMEM_POLICY" && !value.is_empty())?;
    let path = path_with(OsStr::new(named), &[(b'p', &pid.to_string()), (b'e', program)]);
    let path = match path.strip_prefix("/") {
        Ok(below) => root.join(below),
        Err(_) => folder.join(path),
    };
    read(&path).ok()
}

/// A file, or one line that says what is wrong with it and where.
pub fn read(path: &Path) -> Result<Policy, Failure> {
    let refused = |reason: String| Failure { status: 1, line: format!("{}: {reason}", text::quote(path)) };
    let metadata = fs::metadata(path).map_err(|error| refused(error_text(&error)))?;
    if !metadata.is_file() {
        return Err(refused("not a regular file".to_owned())); // a pipe would never end
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(refused(format!("larger than {FILE_BYTES_MAX} bytes: no policy file is")));
    }
    let bytes = fs::read(path).map_err(|error| refused(error_text(&error)))?;
    file::parse(&bytes).map_err(refused)
}
