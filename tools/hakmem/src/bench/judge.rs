//! judge.rs - one run of a program: is it a measurement, or what else was it?
//!
//! Owns:      the JSON line that every workload ends with, and the words for what went wrong.
//! Invariant: a run whose allocator was not in the process is an error, never a number.

use super::allocators::Entry;
use super::launcher::Answer;
use super::results::{Part, Run};
use crate::process::signal_name;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A driver of a real program that is not installed here.
const STATUS_NOT_INSTALLED: i32 = 77;

#[derive(Debug, PartialEq)]
pub enum Judgement {
    Measured(Box<Run>, Option<String>),
    /// In words, one line.
    Failed(String),
    /// The row cannot be measured here at all.
    NotInstalled(String),
}

/// What a workload says; names that are not here become `Run::extra` if they are numbers.
#[derive(Deserialize)]
struct Line {
    ops: u64,
    wall_ns: u64,
    cpu_ns: u64,
    peak_kb: u64,
    #[serde(default)]
    tables_kb: u64,
    #[serde(default)]
    resident_kb: Option<u64>,
    faults: u64,
    objects: Vec<PathBuf>,
    #[serde(default)]
    check: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    version: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// `strangers`: the shared objects of all other allocators; none of them may be in the process.
pub fn judge(answer: &Answer, entry: &Entry, strangers: &[PathBuf], timeout_s: u64) -> Judgement {
    use Judgement::{Failed, NotInstalled};
    if let Some(reason) = &answer.refused {
        return Failed(format!("cannot be started: {reason}"));
    }
    if answer.has_timed_out {
        return Failed(format!("hangs: killed after {timeout_s} s{}", said(&answer.err)));
    }
    if let Some(signal) = answer.signal {
        return Failed(format!("crashed: {}{}", signal_name(signal), said(&answer.err)));
    }
    match answer.status {
        Some(0) => {}
        Some(STATUS_NOT_INSTALLED) => {
            let line = last_line(&answer.err).unwrap_or_else(|| "not installed here".to_owned());
            return NotInstalled(line);
        }
        Some(status) => return Failed(format!("ended with status {status}{}", said(&answer.err))),
        None => return Failed("lost: nobody knows how it ended".to_owned()),
    }
    let line = match line_parse(&answer.out) {
        Ok(line) => line,
        Err(reason) => return Failed(format!("garbage: {reason}")),
    };
    if let Some(reason) = proof_missing(&line.objects, entry, strangers) {
        return Failed(format!("not loaded: {reason}{}", loader_said(&answer.err)));
    }
    let run = Run {
        round: 0,
        ops: line.ops,
        wall_ns: line.wall_ns,
        cpu_ns: line.cpu_ns,
        peak_kb: line.peak_kb,
        tables_kb: line.tables_kb,
        resident_kb: line.resident_kb,
        faults: line.faults,
        process_wall_ns: answer.wall_ns,
        process_user_us: answer.user_us,
        process_system_us: answer.system_us,
        process_faults: answer.faults,
        switches_voluntary: answer.switches_voluntary,
        switches_involuntary: answer.switches_involuntary,
        quiet_before: None,
        quiet_after: None,
        extra: line.rest.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect(),
        parts: line.parts,
        check: line.check,
    };
    Judgement::Measured(Box::new(run), line.version)
}

fn line_parse(out: &str) -> Result<Line, String> {
    let mut lines = out.lines().filter(|line| !line.trim().is_empty());
    let (Some(line), others) = (lines.next(), lines.count()) else {
        return Err("it said nothing".to_owned());
    };
    if others > 0 {
        return Err(format!("{} lines instead of one, the first: {}", others + 1, shortened(line)));
    }
    let parsed: Line = serde_json::from_str(line).map_err(|error| {
        let error = error.to_string();
        let reason = error.split(" at line ").next().unwrap_or_default();
        format!("{reason} in: {}", shortened(line))
    })?;
    if parsed.ops == 0 || parsed.wall_ns == 0 {
        return Err(format!("no work was done: {}", shortened(line)));
    }
    if parsed.peak_kb <= parsed.tables_kb {
        return Err(format!("no memory was used: {}", shortened(line)));
    }
    Ok(parsed)
}

/// Why the objects of a process do not prove its allocator.
fn proof_missing(objects: &[PathBuf], entry: &Entry, strangers: &[PathBuf]) -> Option<String> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mapped: Vec<PathBuf> = objects.iter().map(|path| real(path)).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if mapped.is_empty() {
        return Some("the program names no shared object".to_owned());
    }
    if let Some(path) = entry.preload.iter().find(|path| !mapped.contains(&real(path))) {
        return Some(format!("{} is not in the process", name(path)));
    }
    let wanted: Vec<PathBuf> = entry.preload.iter().map(|path| real(path)).collect();
    let stranger =
        strangers.iter().map(|path| real(path)).find(|p| mapped.contains(p) && !wanted.contains(p));
    stranger.map(|path| format!("{} is in the process too", name(&path)))
}

fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(shortened)
}

fn said(err: &str) -> String {
    last_line(err).map_or(String::new(), |line| format!(" ({line})"))
}

fn loader_said(err: &str) -> String {
    let line = err.lines().find(|line| line.contains("cannot be preloaded"));
    let reason = line.and_then(|line| line.split_once("cannot be preloaded (")?.1.split_once("): "));
    reason.map_or(String::new(), |(reason, _)| format!(" ({reason})"))
}

/// One line of at most 120 characters, nothing in it that a terminal would obey.
fn shortened(line: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    let clean: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match clean.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}...", &clean[..at]),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Allocator;

    const LINE: &str = r#"{"workload":"w","args":[1],"seed":7,"ops":10,"wall_ns":900,"cpu_ns":800,"live_bytes":77,
        "peak_kb":2048,"resident_kb":1024,"faults":5,"objects":["/l/libc.so.6","/l/liba.so"]}"#;

    fn entry(preload: &[&str]) -> Entry {
        let about = Allocator {
            name: "a".to_owned(),
            version: String::new(),
            source: String::new(),
            path: None,
            sha256: None,
            options: None,
            mode: None,
            environment: BTreeMap::new(),
        };
        Entry { preload: preload.iter().map(PathBuf::from).collect(), about }
    }

    fn answer(out: &str) -> Answer {
        Answer { status: Some(0), out: out.replace('\n', ""), ..Answer::default() }
    }

    fn failure(answer: &Answer) -> String {
        match judge(answer, &entry(&["/l/liba.so"]), &[PathBuf::from("/l/libb.so")], 10) {
            Judgement::Failed(line) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_line_is_a_run() {
        let Judgement::Measured(run, version) = judge(&answer(LINE), &entry(&["/l/liba.so"]), &[], 10) else {
            panic!()
        };
        assert_eq!((run.ops, run.wall_ns, run.cpu_ns, run.peak_kb), (10, 900, 800, 2048));
        assert_eq!((run.resident_kb, run.extra.get("live_bytes"), version), (Some(1024), Some(&77.0), None));
    }

    #[test]
    fn what_is_no_measurement_is_said_in_words() {
        assert_eq!(failure(&answer("")), "garbage: it said nothing");
        assert!(
            failure(&answer("Segmentation\u{1b}[31m"))
                .starts_with("garbage: expected value in: Segmentation?")
        );
        assert!(failure(&answer(&LINE.replace("\"ops\":10", "\"ops\":0"))).contains("no work was done"));
        assert!(failure(&answer(&LINE.replace("\"faults\":5,", ""))).contains("missing field `faults`"));
        let twice = Answer { out: "{}\n{}\n".to_owned(), ..answer("") };
        assert!(failure(&twice).contains("2 lines instead of one"));
        let crash =
            Answer { status: None, signal: Some(libc::SIGSEGV), err: "a\nlast\n\n".into(), ..answer("") };
        assert_eq!(failure(&crash), "crashed: SIGSEGV (last)");
        let hang = Answer { has_timed_out: true, signal: Some(libc::SIGKILL), ..answer("") };
        assert_eq!(failure(&hang), "hangs: killed after 10 s");
        let broken = Answer { status: Some(1), err: "block 0x1 has changed".to_owned(), ..answer(LINE) };
        assert_eq!(failure(&broken), "ended with status 1 (block 0x1 has changed)");
    }

    #[test]
    fn an_allocator_that_is_not_there_or_not_alone_is_no_measurement() {
        let gone = Answer {
            err: "ERROR: ld.so: object '/l/liba.so' from LD_PRELOAD cannot be preloaded (wrong ELF class): ignored."
                .to_owned(),
            ..answer(&LINE.replace(",\"/l/liba.so\"", ""))
        };
        assert_eq!(failure(&gone), "not loaded: liba.so is not in the process (wrong ELF class)");
        let both = answer(&LINE.replace("\"/l/libc.so.6\"", "\"/l/libb.so\""));
        assert_eq!(failure(&both), "not loaded: libb.so is in the process too");
        // Without a preload, no other allocator may be there.
        let judged = judge(&answer(LINE), &entry(&[]), &[PathBuf::from("/l/liba.so")], 10);
        assert_eq!(judged, Judgement::Failed("not loaded: liba.so is in the process too".to_owned()));
    }

    #[test]
    fn status_77_is_not_installed() {
        let absent =
            Answer { status: Some(77), err: "redis-server is not installed\n".to_owned(), ..answer("") };
        let judged = judge(&absent, &entry(&[]), &[], 10);
        assert_eq!(judged, Judgement::NotInstalled("redis-server is not installed".to_owned()));
    }
}
