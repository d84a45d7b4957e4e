//! syscalls.rs - --syscalls: how often a run calls the kernel, by kind, as strace counts it.
//!
//! Rows that can be counted per operation are run with their arguments `count`, the others as they are measured. Real
//! programs are started by their drivers, and are not counted.

use super::allocators::Entry;
use super::judge::{Judgement, judge};
use super::places;
use super::progress::Progress;
use super::results::Row;
use super::stand::{Interrupted, Stand, Target};
use super::suite::SuiteRow;
use crate::process;
use crate::text::Failure;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const METHOD: &str = "strace -f -c of one run, start and end of the process included";
const TIMEOUT: Duration = Duration::from_secs(120);

/// The calls by name and the operations that the run made, or why nobody knows.
type Traced = Result<(BTreeMap<String, u64>, u64), String>;

pub struct Tracer {
    strace: PathBuf,
    out: PathBuf,
}

impl Tracer {
    pub fn find(scratch: &Path) -> Result<Tracer, Failure> {
        match process::program_find(OsStr::new("strace")) {
            Ok(strace) => Ok(Tracer { strace, out: scratch.join("strace.out") }),
            Err(_) => Err(Failure::usage("--syscalls: there is no strace: apt-get install strace")),
        }
    }

    fn calls_of(
        &self,
        stand: &Stand,
        target: &Target,
        entry: &Entry,
        arguments: &[String],
    ) -> Result<Traced, Interrupted> {
        let mut before: Vec<String> =
            [&self.strace.display().to_string(), "-f", "-c", "-o", &self.out.display().to_string()]
                .map(str::to_owned)
                .into();
        if let Some(value) = entry.preload_value() {
            before.extend(["-E".to_owned(), format!("LD_PRELOAD={value}")]);
        }
        let mut request = target.request(entry, arguments, &before);
        request.environment.retain(|(name, _)| name != "LD_PRELOAD"); // strace itself runs without
        let answer = stand.launch(request, TIMEOUT)?;
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let _ = fs::remove_file(&self.out);
        Ok(match judge(&answer, entry, &stand.strangers, TIMEOUT.as_secs()) {
            Judgement::Measured(run, _) => {
                table_parse(&text).map(|calls| (calls, run.ops)).ok_or("strace wrote nothing".to_owned())
            }
            Judgement::Failed(reason) | Judgement::NotInstalled(reason) => Err(reason),
        })
    }
}

/// Fills `syscalls` of every cell.
pub fn row_count(
    stand: &Stand,
    row: &SuiteRow,
    tracer: &Tracer,
    measured: &mut Row,
    progress: &Progress,
) -> Result<(), Interrupted> {
    if row.is_real() || measured.cells.is_empty() {
        return Ok(());
    }
    let Ok(program) = places::program_of(row) else { return Ok(()) };
    let target = Target { row, program };
    for (cell, entry) in measured.cells.iter_mut().zip(&stand.entries) {
        if cell.error.is_some() {
            continue;
        }
        progress.step(&row.name, "system calls", entry.name());
        let arguments = if row.per_operation { &row.count } else { row.arguments(stand.settings.size) };
        let (calls, ops) = match tracer.calls_of(stand, &target, entry, arguments)? {
            Ok(counted) => counted,
            Err(reason) => {
                cell.syscalls_error = Some(reason);
                continue;
            }
        };
        let less = if row.per_operation { tracer.calls_of(stand, &target, entry, &row.count_less)?.ok() } else { None };
        if let Some((less, less_ops)) = less.filter(|(_, less_ops)| ops > *less_ops) {
            let sum = |calls: &BTreeMap<String, u64>| calls.values().sum::<u64>() as f64;
            // Start and end vary by a call or two: less than none is none.
            cell.syscalls_per_op = Some(((sum(&calls) - sum(&less)) / (ops - less_ops) as f64).max(0.0));
        }
        cell.syscalls = Some(calls);
    }
    Ok(())
}

/// The lines of `strace -c`: % time, seconds, usecs/call, calls, perhaps errors, and the name.
fn table_parse(text: &str) -> Option<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(count)) = (words.last(), words.get(3)) else { continue };
        let is_row = words.first().is_some_and(|first| first.parse::<f64>().is_ok()) && *name != "total";
        if let (true, Ok(count)) = (is_row, count.parse::<u64>()) {
            *calls.entry((*name).to_owned()).or_insert(0) += count;
        }
    }
    (!calls.is_empty()).then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            95.64    0.000395           9        41           mmap\n  \
            4.36    0.000018           9         2         1 openat\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.000413           9        43         1 total\n";
        let calls = table_parse(text).unwrap();
        assert_eq!(calls, BTreeMap::from([("mmap".to_owned(), 41), ("openat".to_owned(), 2)]));
        assert_eq!(table_parse(""), None);
    }
}
