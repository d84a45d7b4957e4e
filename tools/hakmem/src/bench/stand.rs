//! stand.rs - measure the rows: warm up, interleave, repeat until it is known well enough, and prove who was there.
//!
//! Owns:      the order of the runs, their environment and time limits, and when a row is done.
//! Method:    to warm up, every program is run once, and in the first row every allocator; that is not kept. Then
//!            rounds A B C, C B A, B C A, A C B, ..., each row beginning with another one, each run begun in a quiet
//!            moment (quiet.rs). A row ends when every ratio to its best is steady, or after the last round allowed; when
//!            its share of a pass is used up, it goes on in the next pass over the rows that are not steady yet (mod.rs).
//! Sits out:  who is certainly far behind (figures::is_far_behind), and whose ratio is steady, is known well enough: the
//!            time goes to those who are not. The best and HAKMEM run in every round.
//! Invariant: an allocator that failed once in a row is not started in it again, and has no figures there.

use super::allocators::{Entry, GLIBC, HAKMEM};
use super::budget::Share;
use super::figures;
use super::interrupt::Interrupt;
use super::judge::{Judgement, judge};
use super::launcher::{Answer, Request};
use super::places;
use super::progress::Progress;
use super::quiet::Probe;
use super::results::{Cell, Row, Run, Settings, Size};
use super::suite::SuiteRow;
use crate::system::error_text;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A row gets its least rounds though its time is used up, unless it takes far more than its share.
const SHARES_MAX: u32 = 2;
/// An allocator that takes so many times longer than the slowest before it is taken to hang, ...
const SLOWNESS_MAX: u32 = 30;
/// ... but nobody is killed earlier than this.
const TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// The bench was asked to end.
pub struct Interrupted;

pub struct Stand<'a> {
    pub entries: Vec<Entry>,
    /// Every shared object of an allocator that is known here.
    pub strangers: Vec<PathBuf>,
    pub settings: Settings,
    /// --rounds: exactly so many, whatever they take.
    pub rounds: Option<u32>,
    pub timeout_max: Duration,
    /// The folder of the copies.
    pub scratch: PathBuf,
    pub interrupt: &'a Interrupt,
    pub probe: RefCell<Probe>,
}

/// A program, ready to be run under one allocator after another.
pub struct Target<'a> {
    pub row: &'a SuiteRow,
    pub program: PathBuf,
}

impl Target<'_> {
    /// The command and environment of a run under `entry`. `before` stands in front of the program: a tool that
    /// counts. The driver of a real program sets the preload itself, for the program alone.
    pub fn request(&self, entry: &Entry, arguments: &[String], before: &[String]) -> Request {
        let program = self.program.display().to_string();
        let mut environment = environment_clean();
        let own = entry.about.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        environment.extend(own);
        match (self.row.is_real(), entry.preload_value()) {
            (true, value) => {
                environment.push(("HAKMEM_BENCH_PRELOAD".to_owned(), value.unwrap_or_default()));
            }
            (false, Some(value)) => environment.push(("LD_PRELOAD".to_owned(), value)),
            (false, None) => {}
        }
        Request {
            command: before.iter().cloned().chain([program]).chain(arguments.iter().cloned()).collect(),
            environment,
            timeout_ms: 0,
            is_counted: false,
            scratch: PathBuf::new(),
        }
    }
}

/// The same small environment for every run: nothing that speaks to an allocator or a loader.
fn environment_clean() -> Vec<(String, String)> {
    let kept = ["PATH", "HOME", "TMPDIR"];
    let kept = kept.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let set = [("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0")];
    kept.chain(set.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

// --- one run -------------------------------------------------------------------------------------------

impl Stand<'_> {
    /// Runs a program under the launcher until it ends or we are interrupted.
    pub fn launch(&self, mut request: Request, timeout: Duration) -> Result<Answer, Interrupted> {
        if self.interrupt.is_set() {
            return Err(Interrupted);
        }
        request.scratch.clone_from(&self.scratch);
        request.timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        match self.launch_text(&request) {
            Ok(Some(text)) => Ok(serde_json::from_str(&text).unwrap_or_else(|error| Answer {
                refused: Some(format!("the launcher's answer cannot be read: {error}")),
                ..Answer::default()
            })),
            Ok(None) => Err(Interrupted),
            Err(error) => Ok(Answer {
                refused: Some(format!("no launcher: {}", error_text(&error))),
                ..Answer::default()
            }),
        }
    }

    fn launch_text(&self, request: &Request) -> io::Result<Option<String>> {
        // By this name it is this very command, also when its file was replaced meanwhile.
        let mut launcher = Command::new("/proc/self/exe")
            .arg(super::LAUNCHER_COMMAND)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut to = launcher.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut from =
            File::from(std::os::fd::OwnedFd::from(launcher.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?));
        let line = serde_json::to_string(request).map_err(io::Error::other)?;
        let mut text = String::new();
        let result =
            to.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.hear(&mut from, &mut text));
        drop(to); // if it is still there, it now kills the program and ends
        launcher.wait()?;
        Ok(result?.then_some(text))
    }

    /// Reads to the end; false if an interrupt came first.
    fn hear(&self, from: &mut File, text: &mut String) -> io::Result<bool> {
        let mut bytes = Vec::new();
        loop {
            let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut entries = [entry(from.as_raw_fd()), entry(self.interrupt.fd())];
            unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
            if self.interrupt.is_set() {
                return Ok(false);
            }
            if entries[0].revents == 0 {
                continue;
            }
            let mut buffer = [0; 65536];
            match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        *text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(true)
    }

    fn measure(&self, target: &Target, entry: &Entry, timeout: Duration) -> Result<Judgement, Interrupted> {
        let request = target.request(entry, target.row.arguments(self.settings.size), &[]);
        let answer = self.launch(request, timeout)?;
        Ok(judge(&answer, entry, &self.strangers, timeout.as_secs()))
    }
}

// --- warming up ----------------------------------------------------------------------------------------

impl Stand<'_> {
    /// Runs every program once, and in the first row every allocator: what each row's program takes under the first.
    /// Whoever fails here fails again when it is measured, and is told there.
    pub fn warm_up(
        &self,
        rows: &[SuiteRow],
        progress: &Progress,
    ) -> Result<Vec<Option<Duration>>, Interrupted> {
        let mut times = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let mut time = None;
            if let Ok(program) = places::program_of(row) {
                let target = Target { row, program };
                let entries = if at == 0 { &self.entries[..] } else { &self.entries[..1] };
                for (number, entry) in entries.iter().enumerate() {
                    progress.step(&row.name, "warming up", entry.name());
                    let judged = self.measure(&target, entry, self.timeout(time))?;
                    if let (0, Judgement::Measured(run, _)) = (number, judged) {
                        time = Some(Duration::from_nanos(run.process_wall_ns));
                    }
                }
            }
            times.push(time);
        }
        Ok(times)
    }
}

// --- one row -------------------------------------------------------------------------------------------

pub fn row_empty(row: &SuiteRow, size: Size) -> Row {
    Row {
        name: row.name.clone(),
        about: row.about.clone(),
        program: row.program().to_owned(),
        is_real: row.is_real(),
        file: None,
        program_version: None,
        arguments: row.arguments(size).to_vec(),
        time: row.time,
        rate: row.rate,
        resident_after: row.resident_after,
        profiles: row.profiles.clone(),
        shows: row.shows.clone(),
        sleeps_s: row.sleeps_s(size),
        skipped: None,
        rounds: 0,
        is_steady: false,
        best_time: None,
        best_peak: None,
        cells: Vec::new(),
    }
}

fn cell_empty(entry: &Entry) -> Cell {
    Cell {
        allocator: entry.name().to_owned(),
        error: None,
        runs: Vec::new(),
        figures: None,
        counts: None,
        counts_error: None,
        syscalls: None,
        syscalls_per_op: None,
        syscalls_error: None,
    }
}

/// A row while it is measured.
pub struct Course<'a> {
    pub row: Row,
    target: Option<Target<'a>>,
    /// What each allocator's program computed in its last run.
    checks: Vec<Option<String>>,
    slowest: Option<Duration>,
    /// What all rounds took.
    took: Duration,
    is_done: bool,
}

impl<'a> Course<'a> {
    pub fn round_cost(&self) -> Duration {
        self.took / self.row.rounds.max(1)
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether there is anything in it that is worth keeping.
    pub fn has_begun(&self) -> bool {
        self.row.skipped.is_some() || self.row.cells.iter().any(|c| c.error.is_some() || !c.runs.is_empty())
    }
}

impl Stand<'_> {
    pub fn begin<'a>(&self, row: &'a SuiteRow) -> Course<'a> {
        let mut empty = row_empty(row, self.settings.size);
        let target = match places::program_of(row) {
            Ok(program) => Some(Target { row, program }),
            Err(reason) => {
                empty.skipped = Some(reason);
                None
            }
        };
        if let Some(target) = &target {
            empty.file = Some(target.program.display().to_string());
            empty.cells = self.entries.iter().map(cell_empty).collect();
        }
        let is_done = target.is_none();
        let checks = vec![None; self.entries.len()];
        Course { row: empty, target, checks, slowest: None, took: Duration::ZERO, is_done }
    }

    /// More rounds of a row, within about its share of this pass.
    pub fn go_on(&self, course: &mut Course, share: Share, progress: &Progress) -> Result<(), Interrupted> {
        let Some(target) = course.target.take() else { return Ok(()) };
        let ended = self.rounds_measure(&target, share, course, progress);
        course.target = Some(target);
        figures::row_complete(&mut course.row, &self.settings);
        ended
    }

    fn rounds_measure(
        &self,
        target: &Target,
        share: Share,
        course: &mut Course,
        progress: &Progress,
    ) -> Result<(), Interrupted> {
        let (took_before, rounds_before) = (course.took, course.row.rounds);
        loop {
            let round_started = Instant::now();
            self.round_measure(target, course.row.rounds + 1, course, progress)?;
            if course.row.skipped.is_some() || course.row.cells.iter().all(|cell| cell.error.is_some()) {
                course.is_done = true;
                return Ok(());
            }
            course.row.rounds += 1;
            course.took += round_started.elapsed();
            figures::row_complete(&mut course.row, &self.settings);
            course.is_done = self.is_known(&course.row);
            let rounds = course.row.rounds - rounds_before;
            if course.is_done
                || self.is_time_up(course.took - took_before, rounds, round_started.elapsed(), share)
            {
                return Ok(());
            }
        }
    }

    /// Nothing is left to be learnt.
    fn is_known(&self, row: &Row) -> bool {
        match self.rounds {
            Some(rounds) => row.rounds >= rounds,
            None => row.is_steady || row.rounds >= self.settings.rounds_max,
        }
    }

    fn is_time_up(&self, elapsed: Duration, rounds: u32, last_round: Duration, share: Share) -> bool {
        let limit = share.limit(elapsed / rounds.max(1));
        let has_time = elapsed + last_round <= limit;
        let far_over = elapsed + last_round > limit * SHARES_MAX;
        self.rounds.is_none() && (far_over || (!has_time && rounds >= share.rounds_min()))
    }

    /// Whether a cell sits out the rounds that the others still need.
    fn sits_out(&self, row: &Row, cell: &Cell) -> bool {
        let Some(figures) = &cell.figures else { return false };
        let is_reference = row.best_time.as_ref() == Some(&cell.allocator) || cell.allocator == HAKMEM;
        self.rounds.is_none() && (figures::is_far_behind(figures) || (figures.is_steady && !is_reference))
    }

    fn round_measure(
        &self,
        target: &Target,
        round: u32,
        course: &mut Course,
        progress: &Progress,
    ) -> Result<(), Interrupted> {
        for at in order(self.entries.len(), &target.row.name, round) {
            let entry = &self.entries[at];
            let cell = &course.row.cells[at];
            if cell.error.is_some() || self.sits_out(&course.row, cell) {
                continue;
            }
            progress.run(&target.row.name, round, entry.name());
            let before = self.probe.borrow_mut().wait();
            let judged = self.measure(target, entry, self.timeout(course.slowest))?;
            let after = self.probe.borrow_mut().look();
            match judged {
                Judgement::Failed(reason) => course.row.cells[at].error = Some(reason),
                Judgement::NotInstalled(reason) => {
                    course.row.skipped = Some(reason);
                    course.row.cells.clear();
                    return Ok(());
                }
                Judgement::Measured(run, version) => {
                    course.slowest = course.slowest.max(Some(Duration::from_nanos(run.process_wall_ns)));
                    course.checks[at] = run.check.clone();
                    course.row.program_version = version.or(course.row.program_version.take());
                    course.row.cells[at].runs.push(Run {
                        round,
                        quiet_before: Some(rounded(before)),
                        quiet_after: Some(rounded(after)),
                        ..*run
                    });
                }
            }
        }
        course.checks_compare();
        Ok(())
    }

    fn timeout(&self, slowest: Option<Duration>) -> Duration {
        let patience = slowest.map_or(self.timeout_max, |slowest| (slowest * SLOWNESS_MAX).max(TIMEOUT_MIN));
        patience.min(self.timeout_max)
    }
}

/// Who runs first, second, ... Each row, and each two rounds of it, begin with another allocator, and every second round goes back:
/// with one round per row nobody is the first in all of them.
fn order(count: usize, row: &str, round: u32) -> Vec<usize> {
    let row_number: usize = row.bytes().map(usize::from).sum();
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left((row_number + round.saturating_sub(1) as usize / 2) % count.max(1));
    if round % 2 == 0 {
        order.reverse();
    }
    order
}

/// Three digits say enough of it.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Course<'_> {
    /// What a program computes must not depend on its allocator; the C library's result is the right one. Where it has none, nobody
    /// knows who is right when they differ, HAKMEM's own the least.
    fn checks_compare(&mut self) {
        let mut known: Vec<(usize, String)> = Vec::new();
        for (at, check) in self.checks.iter().enumerate() {
            if let (None, Some(check)) = (&self.row.cells[at].error, check) {
                known.push((at, check.clone()));
            }
        }
        let of_glibc = known.iter().find(|(at, _)| self.row.cells[*at].allocator == GLIBC);
        let Some((by, right)) = of_glibc.or(known.first()).cloned() else { return };
        let is_known = of_glibc.is_some();
        if known.iter().all(|(_, check)| *check == right) {
            return;
        }
        let name = self.row.cells[by].allocator.clone();
        for (at, check) in known {
            if check != right {
                self.row.cells[at].error = Some(format!("differs: its result is {check}, under {name} it is {right}"));
            } else if !is_known {
                self.row.cells[at].error = Some(format!("differs: others' result is not {right}, and glibc's is not known"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn nobody_is_always_the_first() {
        assert_eq!(order(3, "a", 1), [1, 2, 0]);
        assert_eq!(order(3, "a", 2), [0, 2, 1]);
        assert_eq!(order(3, "a", 3), [2, 0, 1]);
        assert_eq!(order(3, "b", 1), [2, 0, 1]);
        assert!(order(0, "a", 1).is_empty());
        let first: Vec<usize> = (1..=18).map(|round| order(9, "larson/one", round)[0]).collect();
        for at in 0..9 {
            assert_eq!(first.iter().filter(|first| **first == at).count(), 2);
        }
    }
}
