//! `hakmem run`: start a program with the library, and say at its end what became of memory.
//!
//! Without a report we become the program. With one we stay and wait: the library writes its statistics into
//! a folder of ours, one file per process (HAKMEM_REPORT with %p), so that children which inherit the
//! environment do not overwrite what the program itself reports.

use crate::check;
use crate::cmd;
use crate::cmd::others::{Others, dump_name};
use crate::cmd::record::{LastLook, Watch};
use crate::elf::{self, File};
use crate::library::{self, Library};
use crate::options::{self, OptionRow};
use crate::output::{Output, path_with_pid};
use crate::policy;
use crate::process::{self, End, Launch, Outcome, signal_name};
use crate::profile::file;
use crate::recording::guards;
use crate::stats::Stats;
use crate::summary::{self, Run};
use crate::text::{self, Failure};
use clap::ValueEnum;
use serde_json::{Value, json};
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

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ReportKind {
    Short,
    Full,
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Say at the end, on standard error, what became of time and memory; =full has every class and counter
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "short")]
    #[arg(value_name = "short|full", hide_possible_values = true)]
    report: Option<ReportKind>,

    /// Write the library's statistics and the kernel's figures to FILE at the end
    #[arg(long, value_name = "FILE")]
    report_json: Option<PathBuf>,

    /// Record which code asks for memory, and write the profile at the end; %p in FILE is the process's number
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Set an option of the library; `hakmem options` lists them
    #[arg(short, long, value_name = "NAME=VALUE")]
    option: Vec<String>,

    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments, flags: &[(&'static OptionRow, String)]) -> Result<u8, Failure> {
    let mut options = options_checked(&arguments.option, flags)?;
    let library = library::find()?;
    let program = process::program_find(&arguments.command[0])?;

    // Where the library's own option asks for the JSON, it is ours to write: the program's, not the last
    // process's.
    let mut json_path = arguments.report_json.clone();
    options.retain(|(row, value)| {
        let is_report = row.name == "report";
        if is_report {
            json_path.get_or_insert_with(|| PathBuf::from(value));
        }
        // So does --record with the option of its name.
        !is_report && (row.name != "record" || arguments.record.is_none())
    });
    let is_guarded = is_guarded(&options);
    policy_note(&options);
    let mut changes: Vec<(String, OsString)> =
        options.into_iter().map(|(row, value)| (row.variable(), OsString::from(value))).collect();
    let is_linked = is_linked(&program);
    if !is_linked {
        let preload = library::preload_value(&library.path, env::var_os("LD_PRELOAD").as_deref());
        changes.push(("LD_PRELOAD".to_owned(), preload));
    }

    let obstacle = obstacle_to_preload(&program, &library).filter(|_| !is_linked);
    if arguments.report.is_none() && json_path.is_none() && arguments.record.is_none() {
        if let Some(obstacle) = &obstacle {
            text::line_to_stderr(&format!(
                "hakmem: note: {} runs without hakmem: {obstacle}",
                text::quote(&program)
            ));
        }
        if !is_guarded {
            return Err(launch(program, &arguments.command, &changes)?.exec());
        }
    }

    // Before the work is done for nothing; a child's number is not known yet, and is as long as ours.
    for path in [arguments.record.as_deref(), json_path.as_deref()].into_iter().flatten() {
        let path = path_with_pid(path.as_os_str(), std::process::id());
        Output::open(&path).map_err(|failure| Failure::start(failure.line))?;
    }
    let mut folder = ReportFolder::make()?;
    let wanted = env::var_os("HAKMEM_REPORT");
    changes.push(("HAKMEM_REPORT".to_owned(), folder.pattern()));
    if arguments.record.is_some() {
        let mut into = folder.path.clone().into_os_string();
        into.push("/"); // a folder: each process has a file of its own there
        changes.push(("HAKMEM_RECORD".to_owned(), into));
    }
    if is_guarded {
        let mut into = folder.path.clone().into_os_string();
        into.push("/");
        changes.push(("HAKMEM_GUARD_DUMP".to_owned(), into));
    }
    let is_recorded = arguments.record.is_some();
    let is_alone = arguments.record.as_ref().is_some_and(|path| !is_of_each(path));
    let (outcome, (last_look, left_count)) = launch(program.clone(), &arguments.command, &changes)?
        .wait_beside(|pid| {
            let watch = if is_recorded { Watch::begin(pid) } else { None };
            let others = if is_alone { Others::begin(folder.path.clone(), pid) } else { None };
            || (watch.and_then(Watch::end), others.map_or(0, Others::end))
        })?;
    if is_guarded {
        folder.misuses_say();
    }
    let Reports { own, others } = folder.take(outcome.pid);
    let other_count = others.len();
    let stats = match &own {
        Some(text) => Stats::parse(text).map_err(|reason| format!("what it wrote cannot be read ({reason})")),
        None => Err(folder.absence_reason(obstacle.clone(), &outcome)),
    };
    if let (Some(path), Some(text)) = (&wanted, &own) {
        file_write(&path_with_pid(path, outcome.pid), text);
    }
    if let Some(path) = &json_path {
        file_write(
            &path_with_pid(path.as_os_str(), outcome.pid),
            &json_report(own.as_deref(), &outcome, other_count),
        );
    }
    let run = Run {
        program: &text::quote(&arguments.command[0]),
        library_version: &library.version_text(),
        outcome: &outcome,
        stats: stats.as_ref().map_err(String::as_str),
        others: &others.iter().filter_map(|text| Stats::parse(text).ok()).collect::<Vec<_>>(),
        is_full: arguments.report == Some(ReportKind::Full),
    };
    if let Some(path) = &arguments.record {
        folder.profiles_write(path, &outcome, obstacle, last_look, left_count);
    }
    folder.outliving_say();
    if arguments.report.is_some() {
        text::line_to_stderr(summary::summary(&run).trim_end());
    } else if let (Err(reason), true) = (&stats, json_path.is_some()) {
        text::line_to_stderr(&format!("hakmem: no report from the library: {reason}"));
    }
    drop(folder); // before we may die of the program's signal
    Ok(process::end_alike(outcome.end))
}

/// What an option will be, by the command line or the environment.
fn value_of(options: &[(&'static OptionRow, String)], name: &str) -> OsString {
    let given = options.iter().find(|(row, _)| row.name == name).map(|(_, value)| OsString::from(value));
    given.or_else(|| env::var_os(format!("HAKMEM_{}", name.to_uppercase()))).unwrap_or_default()
}

/// Each process has a file of its own.
fn is_of_each(path: &Path) -> bool {
    path_with_pid(path.as_os_str(), 0) != path_with_pid(path.as_os_str(), 1)
}

/// Blocks are guarded, and nobody else wants the dump of what is found.
fn is_guarded(options: &[(&'static OptionRow, String)]) -> bool {
    let guard = value_of(options, "guard").to_str().and_then(|guard| guard.parse::<u64>().ok());
    guard.is_some_and(|guard| guard > 0) && value_of(options, "guard_dump").is_empty()
}

/// The library says it at the program's end, when the work is done. A policy that is only used may be read-only.
fn policy_note(options: &[(&'static OptionRow, String)]) {
    let path = PathBuf::from(value_of(options, "policy"));
    let stage = value_of(options, "evo_policy");
    if path.as_os_str().is_empty() || stage == "frozen" || stage == "off" {
        return;
    }
    if let Some(reason) = policy::write_obstacle(&path) {
        let path = text::quote(&path);
        text::line_to_stderr(&format!(
            "hakmem: note: what is learnt will not be kept: {path} cannot be written: {reason}"
        ));
    }
}

/// A program that has run with the library to its end, with what the library reported of it.
pub struct Reported {
    pub outcome: Outcome,
    /// The program's own report, or why there is none.
    pub report: Result<Value, String>,
    folder: ReportFolder,
}

impl Reported {
    /// A file that the program may have left: the folder goes with this.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }
}

/// Runs a program as `hakmem run` does, with a folder of ours for what the library writes; `more` is set for it, %f
/// being that folder.
pub fn run_reported(command: &[OsString], more: &[(&str, &str)]) -> Result<Reported, Failure> {
    let library = library::find()?;
    let program = process::program_find(&command[0])?;
    let obstacle = obstacle_to_preload(&program, &library);
    let folder = ReportFolder::make()?;
    let preload = library::preload_value(&library.path, env::var_os("LD_PRELOAD").as_deref());
    let mut changes =
        vec![("LD_PRELOAD".to_owned(), preload), ("HAKMEM_REPORT".to_owned(), folder.pattern())];
    let place = folder.path.display().to_string().replace('%', "%%");
    changes.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.replace("%f", &place).into())));
    let outcome = launch(program, command, &changes)?.wait()?;
    let report = match folder.take(outcome.pid).own {
        Some(text) => serde_json::from_str(&text).map_err(|_| "what it wrote cannot be read".to_owned()),
        None => Err(folder.absence_reason(obstacle, &outcome)),
    };
    Ok(Reported { outcome, report, folder })
}

fn launch(program: PathBuf, command: &[OsString], changes: &[(String, OsString)]) -> Result<Launch, Failure> {
    Launch::new(program, command, changes).map_err(|_| {
        Failure::usage("an argument or a value holds a zero byte, which no program can be given")
    })
}

/// The options by flag, then those by --option, each checked as the library would.
fn options_checked(
    by_name: &[String],
    by_flag: &[(&'static OptionRow, String)],
) -> Result<Vec<(&'static OptionRow, String)>, Failure> {
    let mut options: Vec<(&'static OptionRow, String)> = Vec::new();
    let named = by_name.iter().map(|assignment| {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--option {} has no =VALUE", text::quote(assignment))))?;
        Ok((options::find(name)?, value.to_owned()))
    });
    for given in by_flag.iter().cloned().map(Ok).chain(named) {
        let (row, value) = given?;
        if let Some(reason) = row.value_refused(&value) {
            return Err(Failure::usage(reason));
        }
        options.retain(|(other, _)| other.name != row.name);
        options.push((row, value));
    }
    Ok(options)
}

/// A second copy would stand idle beside the program's own, and answer for it.
fn is_linked(program: &Path) -> bool {
    let examined = check::program::examined_program(program, &mut Vec::new());
    examined
        .is_ok_and(|found| found.is_some_and(|(file, headers)| check::program::is_linked(&file, &headers)))
}

/// Why the loader would not preload the library into this program, if that is certain from the file.
fn obstacle_to_preload(program: &Path, library: &Library) -> Option<String> {
    let (file, headers) = check::program::examined_program(program, &mut Vec::new()).ok()??;
    let Ok(File::Elf(ours)) = elf::open(&library.path) else { return None };
    check::program::preload_obstacle(&file, &headers, Some((ours.machine, ours.is_64)))
        .map(|obstacle| obstacle.what)
}

fn json_report(own: Option<&str>, outcome: &Outcome, other_count: usize) -> String {
    let own: Option<Value> = own.and_then(|text| serde_json::from_str(text).ok());
    let mut report = own.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let usage = &outcome.usage;
    let mut run = json!({
        "wall_seconds": usage.wall.as_secs_f64(),
        "user_seconds": usage.user.as_secs_f64(),
        "system_seconds": usage.system.as_secs_f64(),
        "resident_peak_bytes": usage.resident_peak_bytes,
        "fault_count": usage.fault_count,
        "disk_fault_count": usage.disk_fault_count,
        "other_process_count": other_count,
    });
    match outcome.end {
        End::Status(status) => run["exit_status"] = status.into(),
        End::Signal(signal) => run["signal"] = signal_name(signal).into(),
    }
    report["run"] = run;
    format!("{report:#}\n")
}

fn file_write(path: &Path, content: &str) {
    if let Err(failure) = Output::open(path).and_then(|output| output.write(content.as_bytes())) {
        text::line_to_stderr(&format!("hakmem: {}", failure.line));
    }
}

struct Reports {
    own: Option<String>,
    others: Vec<String>,
}

/// A private folder for the reports of the program and its children; gone when dropped, if all is told that was in it.
struct ReportFolder {
    path: PathBuf,
    outer: PathBuf,     // itself, or around it
    kept: Vec<PathBuf>, // what could be put nowhere else, or was named to the user
}

impl ReportFolder {
    fn make() -> Result<ReportFolder, Failure> {
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
    fn outliving_say(&self) {
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
    fn absence_reason(&self, obstacle: Option<String>, outcome: &Outcome) -> String {
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
    fn pattern(&self) -> OsString {
        let folder = self.path.as_os_str().as_bytes();
        let mut pattern: Vec<u8> = Vec::new();
        for byte in folder {
            pattern.extend_from_slice(if *byte == b'%' { b"%%" } else { std::slice::from_ref(byte) });
        }
        pattern.extend_from_slice(b"/%p.json");
        OsString::from_vec(pattern)
    }

    /// Its files; a link that another user left in the place of one is none.
    fn names(&self) -> impl Iterator<Item = OsString> + use<> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_plain = |entry: &DirEntry| entry.metadata().is_ok_and(|it| it.is_file() && it.nlink() == 1);
        entries.filter(is_plain).map(|entry| entry.file_name())
    }

    /// What the process `pid` reported, and what others did.
    fn take(&self, pid: u32) -> Reports {
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
        Reports {
            own: self.names().find(|name| *name == OsStr::new(&own_name)).and_then(|name| read(&name)),
            others: self.names().filter(is_other).filter_map(|name| read(&name)).collect(),
        }
    }
}

impl ReportFolder {
    /// The dumps of the program as profiles, its last one at `path` (%p is its number), one written for another reason
    /// than its end beside it. Those of its children, too, where %p keeps them apart.
    /// Where its end left none, it is what was last seen of it.
    fn profiles_write(
        &mut self,
        path: &Path,
        outcome: &Outcome,
        obstacle: Option<String>,
        last_look: Option<LastLook>,
        mut left_count: u64,
    ) {
        let with_children = is_of_each(path);
        let mut has_own = false;
        for name in self.names() {
            let Some((pid, reason)) = dump_name(&name) else { continue };
            if pid != outcome.pid && !with_children {
                left_count += 1;
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
    fn misuses_say(&mut self) {
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
    fn the_last_word_on_an_option_counts() {
        let row = options::find("stats").ok().unwrap();
        let flags = [(row, "1".to_owned())];
        let options = options_checked(&["stats=0".to_owned()], &flags).unwrap();
        assert_eq!(options.len(), 1);
        assert_eq!(options[0].1, "0");
    }

    #[test]
    fn options_are_checked_before_anything_is_started() {
        for (assignment, line) in [
            ("stats", "--option stats has no =VALUE"),
            ("stats=2", "stats=2 is not a number from 0 to 1"),
            ("statz=1", "there is no option statz; the nearest is stats"),
        ] {
            let failure = options_checked(&[assignment.to_owned()], &[]).err().unwrap();
            assert_eq!((failure.status, failure.line.as_str()), (2, line));
        }
    }

    #[test]
    fn others_reports_are_counted_and_the_folder_goes() {
        let folder = ReportFolder::make().unwrap();
        for name in ["7.json", "8.json", "9.json", "9.json.tmp", "x.json"] {
            fs::write(folder.path.join(name), name).unwrap();
        }
        let reports = folder.take(7);
        assert_eq!((reports.own.as_deref(), reports.others.len()), (Some("7.json"), 2));
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
