//! `hakmem run`: start a program with the library, and say at its end what became of memory.
//!
//! Without a report we become the program. With one we stay and wait: the library writes its statistics into
//! a folder of ours, one file per process (HAKMEM_REPORT with %p), so that children which inherit the
//! environment do not overwrite what the program itself reports.

use crate::check;
use crate::check::program::Obstacle;
use crate::cmd::others::Others;
use crate::cmd::record::Watch;
use crate::cmd::reports::{ReportFolder, Reports, is_of_each};
use crate::elf::{self, File};
use crate::library::{self, Library};
use crate::options::{self, OptionRow};
use crate::output::{Output, path_with_pid};
use crate::policy;
use crate::process::{self, End, Launch, Outcome, signal_name};
use crate::stats::Stats;
use crate::summary::{self, Run};
use crate::text::{self, Failure};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    let obstacle = obstacle_to_preload(&program, &library).filter(|_| !is_linked);
    changes.extend(preload_change(&library, obstacle.as_ref()).filter(|_| !is_linked));
    let obstacle = obstacle.map(|obstacle| obstacle.what);
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
    let place = text::quote(&folder.path);
    process::hurry_on_signals(format!("hakmem: ended; what was written stays in {place}\n").into_bytes());
    let wanted = env::var_os("HAKMEM_REPORT").filter(|path| !path.is_empty()); // empty is unset
    changes.push(("HAKMEM_REPORT".to_owned(), folder.pattern()));
    if arguments.record.is_some() {
        changes.push(("HAKMEM_RECORD".to_owned(), folder.pattern_of_dumps()));
    }
    if is_guarded {
        changes.push(("HAKMEM_GUARD_DUMP".to_owned(), folder.pattern_of_dumps()));
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
    let Reports { own, others, other_count } = folder.take(outcome.pid);
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
        others: &others,
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
    let is_linked = is_linked(&program);
    let obstacle = obstacle_to_preload(&program, &library).filter(|_| !is_linked);
    let folder = ReportFolder::make()?;
    let mut changes = vec![("HAKMEM_REPORT".to_owned(), folder.pattern())];
    changes.extend(preload_change(&library, obstacle.as_ref()).filter(|_| !is_linked));
    let place = folder.path.display().to_string().replace('%', "%%");
    changes.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.replace("%f", &place).into())));
    let outcome = launch(program, command, &changes)?.wait()?;
    let report = match folder.take(outcome.pid).own {
        Some(text) => serde_json::from_str(&text).map_err(|_| "what it wrote cannot be read".to_owned()),
        None => Err(folder.absence_reason(obstacle.map(|obstacle| obstacle.what), &outcome)),
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
fn obstacle_to_preload(program: &Path, library: &Library) -> Option<Obstacle> {
    let (file, headers) = check::program::examined_program(program, &mut Vec::new()).ok()??;
    let Ok(File::Elf(ours)) = elf::open(&library.path) else { return None };
    check::program::preload_obstacle(&file, &headers, Some(&ours))
}

/// What a loader that cannot take the library finds in LD_PRELOAD is only what stood there before.
fn preload_change(library: &Library, obstacle: Option<&Obstacle>) -> Option<(String, OsString)> {
    let value = || library::preload_value(&library.path, env::var_os("LD_PRELOAD").as_deref());
    (!obstacle.is_some_and(|obstacle| obstacle.is_foreign)).then(|| ("LD_PRELOAD".to_owned(), value()))
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
}
