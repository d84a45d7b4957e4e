//! reports.rs - the private folder of a `hakmem run`: into it the program and its children write what they report and record.
//!
//! Rule: it goes with its owner, unless something is in it that could be put nowhere else; that is then told by its name.

use crate::cmd;
use crate::cmd::others::dump_name;
use crate::cmd::record::LastLook;
use crate::options;
use crate::output::path_with_pid;
use crate::process::{self, End, Outcome, signal_name};
use crate::profile::file;
use crate::recording::guards;
use crate::stats::Stats;
use crate::text::{self, Failure};
use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{DirEntry, Permissions};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

/// What sees more where the recording is begun here.
const SAMPLE_BYTES: &str = "a smaller --sample-bytes sees more";
const REPORT_BYTES_MAX: u64 = 64 << 20; // the library writes some tens of KB

/// Each process has a file of its own.
pub fn is_of_each(path: &Path) -> bool {
    path_with_pid(path.as_os_str(), 0) != path_with_pid(path.as_os_str(), 1)
}

/// What is left of JSON reports.
pub struct Reports {
    pub own: Option<String>,
    pub others: Vec<Stats>, // those that can be read
    pub other_count: usize,
}

/// A private folder for the reports of the program and its children; gone when dropped, if all is told that was in it.
pub struct ReportFolder {
    pub path: PathBuf,
    outer: PathBuf,     // itself, or around it
    kept: Vec<PathBuf>, // what could be put nowhere else, or was named to the user
}

impl ReportFolder {
    pub fn make() -> Result<ReportFolder, Failure> {
        // An empty TMPDIR is none.
        let place = Some(env::temp_dir()).filter(|place| !place.as_os_str().is_empty());
        let place = place.unwrap_or_else(|| PathBuf::from("/tmp"));
        let refused = |reason: String| {
            Failure::start(format!(
                "no folder for the report can be made in {}: {reason}",
                text::quote(&place)
            ))
        };
        // Absolute: the program may change its folder.
        let absolute =
            fs::canonicalize(&place).map_err(|error| refused(crate::system::error_text(&error)))?;
        let outer = folder_new(&absolute.join("hakmem-run.XXXXXX")).map_err(refused)?;
        let mut folder = ReportFolder { path: outer.clone(), outer, kept: Vec::new() };
        // What root starts may change its user (a server's workers do): it may leave files here, and neither list nor
        // replace anybody's. Who was not started here does not know the inner folder's name, and cannot put others in.
        if unsafe { libc::geteuid() } == 0 {
            let mode = |path: &Path, mode| {
                fs::set_permissions(path, Permissions::from_mode(mode))
                    .map_err(|error| refused(crate::system::error_text(&error)))
            };
            folder.path = folder_new(&folder.outer.join("XXXXXX")).map_err(refused)?;
            mode(&folder.path, 0o1733)?;
            mode(&folder.outer, 0o711)?;
        }
        if folder.pattern().len() > options::TEXT_BYTES_MAX {
            return Err(refused("its name is too long".to_owned()));
        }
        Ok(folder)
    }

    /// Processes that go on, and were to write here.
    pub fn outliving_say(&self) {
        let pids = self.outliving();
        let line = match pids.as_slice() {
            [] => return,
            [pid] => format!(
                "1 process that it started goes on, and its end is not seen here; \
                 `hakmem record -p {pid}` records it"
            ),
            _ => format!(
                "{} processes that it started go on, and their ends are not seen here; \
                 `hakmem record -p PID` records them",
                text::count(pids.len() as u64)
            ),
        };
        text::line_to_stderr(&format!("hakmem: {line}"));
    }

    /// Those that have this folder in their environment, as far as they may be looked at in a moment.
    fn outliving(&self) -> Vec<u32> {
        const TIME: Duration = Duration::from_millis(200);
        const ENVIRONMENT_BYTES: u64 = 1 << 20;
        let until = Instant::now() + TIME;
        let has_folder = |pid: &u32| {
            let mut text = Vec::new();
            let file = fs::File::open(format!("/proc/{pid}/environ"));
            let read = file.and_then(|file| file.take(ENVIRONMENT_BYTES).read_to_end(&mut text));
            let place = self.path.as_os_str().as_bytes();
            read.is_ok() && text.windows(place.len()).any(|part| part == place)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.take_while(|_| Instant::now() < until).filter(has_folder).collect()
    }

    /// Why the program left nothing here.
    pub fn absence_reason(&self, obstacle: Option<String>, outcome: &Outcome) -> String {
        match (obstacle, outcome.end) {
            (Some(obstacle), _) => obstacle,
            (None, End::Signal(signal)) => {
                format!("{} ended the program before it could", signal_name(signal))
            }
            (None, End::Status(_)) if self.is_full() => {
                let place = self.outer.parent().unwrap_or(&self.outer);
                format!("the filesystem of {} is full", text::quote(place))
            }
            (None, End::Status(_)) => {
                "the program ended by _exit, cleared its environment, shut itself into a \
                                       sandbox or became a program that cannot be preloaded"
                    .to_owned()
            }
        }
    }

    /// There is no room for a dump; what is left of one that was begun is gone again.
    fn is_full(&self) -> bool {
        const DUMP_BYTES: u64 = 1 << 20;
        let Ok(path) = CString::new(self.path.as_os_str().as_bytes()) else { return false };
        unsafe {
            let mut found: libc::statvfs = std::mem::zeroed();
            libc::statvfs(path.as_ptr(), &mut found) == 0
                && (found.f_bavail.saturating_mul(found.f_frsize) < DUMP_BYTES
                    || (found.f_files > 0 && found.f_favail == 0))
        }
    }

    /// What HAKMEM_REPORT is to be.
    pub fn pattern(&self) -> OsString {
        self.pattern_of("/%p.json")
    }

    /// What HAKMEM_RECORD and HAKMEM_GUARD_DUMP are to be: the folder, in which each process has a file of its own.
    pub fn pattern_of_dumps(&self) -> OsString {
        self.pattern_of("/")
    }

    fn pattern_of(&self, more: &str) -> OsString {
        let folder = self.path.as_os_str().as_bytes();
        let mut pattern: Vec<u8> = Vec::new();
        for byte in folder {
            pattern.extend_from_slice(if *byte == b'%' { b"%%" } else { std::slice::from_ref(byte) });
        }
        pattern.extend_from_slice(more.as_bytes());
        OsString::from_vec(pattern)
    }

    /// Its files; a link that another user left in the place of one is none.
    fn names(&self) -> impl Iterator<Item = OsString> + use<> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_plain = |entry: &DirEntry| entry.metadata().is_ok_and(|it| it.is_file() && it.nlink() == 1);
        entries.filter(is_plain).map(|entry| entry.file_name())
    }

    /// What the process `pid` reported, and what others did.
    pub fn take(&self, pid: u32) -> Reports {
        let own_name = format!("{pid}.json");
        let read = |name: &OsStr| {
            let mut text = Vec::new();
            let file = fs::File::open(self.path.join(name)).ok()?;
            file.take(REPORT_BYTES_MAX).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let is_other = |name: &OsString| {
            let number = name.as_bytes().strip_suffix(b".json").unwrap_or_default();
            !number.is_empty() && number.iter().all(u8::is_ascii_digit) && *name != OsStr::new(&own_name)
        };
        // One text at a time: a build leaves thousands.
        let (mut others, mut other_count) = (Vec::new(), 0);
        for text in self.names().filter(is_other).filter_map(|name| read(&name)) {
            other_count += 1;
            others.extend(Stats::parse(&text).ok());
        }
        let own = self.names().find(|name| *name == OsStr::new(&own_name)).and_then(|name| read(&name));
        Reports { own, others, other_count }
    }
}

impl ReportFolder {
    /// The dumps of the program as profiles, its last one at `path` (%p is its number), one written for another reason
    /// than its end beside it. Those of its children, too, where %p keeps them apart.
    /// Where its end left none, it is what was last seen of it.
    pub fn profiles_write(
        &mut self,
        path: &Path,
        outcome: &Outcome,
        obstacle: Option<String>,
        last_look: Option<LastLook>,
        mut left_count: u64,
    ) {
        let with_children = is_of_each(path);
        let mut has_own = false;
        let mut left = HashSet::new(); // a process may leave more than one
        for name in self.names() {
            let Some((pid, reason)) = dump_name(&name) else { continue };
            if pid != outcome.pid && !with_children {
                left.insert(pid);
                continue;
            }
            let mut to = path_with_pid(path.as_os_str(), pid).into_os_string();
            if reason != "exit" {
                to.push(format!(".{reason}"));
            }
            has_own |= pid == outcome.pid && reason == "exit";
            let dump = self.path.join(&name);
            let written = file::read(&dump)
                .and_then(|profile| cmd::record::written(Path::new(&to), &profile, SAMPLE_BYTES));
            if let Err(failure) = written {
                self.kept.push(dump.clone());
                text::line_to_stderr(&format!(
                    "hakmem: {}; what was recorded stays in {}, of which hakmem dump makes a profile",
                    failure.line,
                    text::quote(&dump)
                ));
            }
        }
        if process::is_hurried() {
            text::line_to_stderr(
                "hakmem: interrupted: functions that had no name by then have none in the profile",
            );
        }
        if !has_own {
            let reason = self.absence_reason(obstacle, outcome);
            let path = path_with_pid(path.as_os_str(), outcome.pid);
            let line = match last_look.map(|look| look.write(&path, &reason, SAMPLE_BYTES)) {
                Some(Ok(())) => None,
                Some(Err(failure)) => Some(failure.line),
                None => Some(format!("no profile at {}: {reason}", text::quote(&path))),
            };
            line.iter().for_each(|line| text::line_to_stderr(&format!("hakmem: {line}")));
        }
        left_count += left.len() as u64;
        if left_count > 0 {
            let children = text::counted(left_count, "other process", "other processes");
            text::line_to_stderr(&format!(
                "hakmem: {children} recorded, too; with %p in FILE each gets its own"
            ));
        }
    }
}

impl ReportFolder {
    /// What was done to guarded blocks, by the program or its children: its lines, behind those of the library.
    pub fn misuses_say(&mut self) {
        for name in self.names().filter(|name| dump_name(name).is_some_and(|(_, reason)| reason == "guard")) {
            // The library's line has its name.
            self.kept.push(self.path.join(&name));
            match cmd::guard::of_dump(&self.path.join(&name)) {
                Ok(found) => guards::text_of(&found)
                    .lines()
                    .for_each(|line| text::line_to_stderr(&format!("hakmem: {line}"))),
                Err(failure) => text::line_to_stderr(&format!("hakmem: {}", failure.line)),
            }
        }
    }
}

/// A new folder that is ours alone.
fn folder_new(template: &Path) -> Result<PathBuf, String> {
    let name = CString::new(template.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    let name = name.into_raw();
    let (made, error) = unsafe { (!libc::mkdtemp(name).is_null(), std::io::Error::last_os_error()) };
    let name = unsafe { CString::from_raw(name) };
    if made {
        Ok(PathBuf::from(OsString::from_vec(name.into_bytes())))
    } else {
        Err(crate::system::error_text(&error))
    }
}

impl Drop for ReportFolder {
    fn drop(&mut self) {
        // A child that ends later finds no folder; the library knows by its name that nobody misses what it had.
        if self.kept.is_empty() {
            let _ = fs::remove_dir_all(&self.outer);
            return;
        }
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| !self.kept.contains(path)).for_each(|path| {
            let _ = fs::remove_file(path);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_reports_are_counted_and_the_folder_goes() {
        let folder = ReportFolder::make().unwrap();
        for name in ["7.json", "8.json", "9.json", "9.json.tmp", "x.json"] {
            fs::write(folder.path.join(name), name).unwrap();
        }
        let reports = folder.take(7);
        assert_eq!((reports.own.as_deref(), reports.other_count), (Some("7.json"), 2));
        assert_eq!(folder.take(6).own, None);
        let (path, outer) = (folder.path.clone(), folder.outer.clone());
        if unsafe { libc::geteuid() } == 0 {
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
            assert!(path != outer && mode(&path) == 0o1733);
            assert_eq!(mode(&outer), 0o711, "others cannot list it");
        }
        drop(folder);
        assert!(!path.exists() && !outer.exists());
    }
}
