//! progress.rs - what is said on standard error while we measure: a bar in a terminal, plain lines otherwise.
//!
//! Rule: nothing is drawn while a program runs; a bar that moves would be measured too.

use super::results::Row;
use crate::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

pub struct Progress {
    bar: Option<ProgressBar>,
    at: usize,
    count: usize,
}

impl Progress {
    pub fn new(count: usize) -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {elapsed} {wide_msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Progress { bar, at: 0, count }
    }

    /// Before each run.
    pub fn run(&self, row: &str, round: u32, allocator: &str) {
        self.step(row, &format!("round {round}"), allocator);
    }

    /// Before a run that is none of the measured ones.
    pub fn step(&self, row: &str, what: &str, allocator: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{row}, {what}: {allocator}"));
        }
    }

    /// So many rows are to be measured again.
    pub fn more(&mut self, count: usize) {
        self.count += count;
        if let Some(bar) = &self.bar {
            bar.inc_length(count as u64);
        }
    }

    pub fn row_end(&mut self, row: &Row, elapsed: Duration, is_again: bool) {
        self.at += 1;
        let state = match &row.skipped {
            Some(reason) => format!("not measured: {reason}"),
            None => {
                let failed = row.cells.iter().filter(|cell| cell.error.is_some()).count() as u64;
                let failed = (failed > 0)
                    .then(|| format!(", {} failed", text::counted(failed, "allocator", "allocators")));
                let steady = if row.is_steady { "steady" } else { "not steady" };
                let rounds = text::counted(u64::from(row.rounds), "round", "rounds");
                let more = if is_again { " more" } else { "" };
                format!(
                    "{rounds}, {:.1} s{more}, {steady}{}",
                    elapsed.as_secs_f64(),
                    failed.unwrap_or_default()
                )
            }
        };
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => text::line_to_stderr(&format!("[{}/{}] {}: {state}", self.at, self.count, row.name)),
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
