//! `hakmem bench`: HAKMEM and whatever allocators are at hand, side by side, in one run.
//!
//! suite       the rows: what can be measured             places    the programs that do the work
//! allocators  who takes part; peers: who could          machine   where
//! passes      all rows, and again those that need it     budget    the time that each may take
//! stand       the rounds of one row                      launcher  one program, and nothing left of it
//! judge       is a run a measurement?                    quiet     does anybody else use the memory just now?
//! figures     medians, ratios, bests                     statistics
//! results     the result file                            save      files that we write; record: --record
//! counted     --count, with perf                         syscalls  --syscalls
//! table       the terminal, with grid and costs          html, compare   the page, and --compare
//! isolate     HAKMEM with each feature off
//! progress, interrupt                                    while it lasts

mod allocators;
mod budget;
mod compare;
mod costs;
mod counted;
mod figures;
mod grid;
mod html;
mod interrupt;
mod isolate;
mod judge;
mod launcher;
mod lists;
pub mod machine;
mod passes;
mod peers;
mod perf;
mod places;
mod progress;
mod quiet;
mod record;
mod results;
pub mod save;
mod stand;
mod statistics;
mod suite;
mod syscalls;
mod table;
mod words;

use crate::output::Output;
use crate::process;
use crate::text::{self, Failure, colours_welcome};
use interrupt::Interrupt;
use passes::Plan;
use progress::Progress;
use quiet::Probe;
use record::Record;
use results::{Results, Row, SCHEMA, Settings, Size};
use stand::{Course, Interrupted, Stand};
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::SuiteRow;

pub use launcher::serve;
/// The hidden command that stands between the bench and the programs it runs.
pub const LAUNCHER_COMMAND: &str = "bench-launch";

const ROUNDS_MAX: u32 = 120;
/// The file of --json is written at most so often: it may be megabytes.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// A quick run of everything stays within ten minutes: this is what its rows share.
const QUICK_BUDGET: Duration = Duration::from_secs(500);
const QUICK_ROW_MAX: Duration = Duration::from_secs(30);
const FULL_ROW_MAX: Duration = Duration::from_secs(150);
/// Half-widths of the 95% interval of a ratio that count as steady.
const STEADY_CPU: f64 = 0.015;
const STEADY_WALL: f64 = 0.03;

#[derive(clap::Args)]
pub struct Arguments {
    /// Workloads, rows or profiles [default: the profile quick; with --full, every row]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Compare with these only: names of --peers, NAME=FILE for any shared object
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    with: Option<Vec<String>>,

    /// Short runs: all rows within ten minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Long runs
    #[arg(long)]
    full: bool,

    /// Measure exactly N rounds of each row, whatever they take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Kill a run after so many seconds [default: 60; with --full, 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: Option<u64>,

    /// Write everything that was measured to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write one self-contained page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a result of record to FOLDER: a file of everything and a page of text, to be kept
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,

    /// Say what changed since the run that wrote OLD.json, and whether it is more than noise
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,

    /// Measure nothing: show the run that wrote FILE.json
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["names", "with", "quick", "full", "rounds", "json"])]
    from: Option<PathBuf>,

    /// Count instructions, branches and cache misses per operation too
    #[arg(long, conflicts_with = "from")]
    count: bool,

    /// Count system calls too
    #[arg(long, conflicts_with = "from")]
    syscalls: bool,

    /// The table of this project's seeds: their workloads, and what an operation costs (seeds --count --syscalls)
    #[arg(long, conflicts_with_all = ["from", "names"])]
    seeds: bool,

    /// HAKMEM alone, with everything and with each feature off: what each costs and brings. Long runs unless --quick
    #[arg(long, conflicts_with_all = ["from", "with", "seeds"])]
    isolate: bool,

    /// List the rows
    #[arg(long)]
    list: bool,

    /// List the allocators, and how to get those that are missing
    #[arg(long, conflicts_with = "list")]
    peers: bool,
}

impl Arguments {
    fn size(&self) -> Size {
        if self.is_full() { Size::Full } else { Size::Quick }
    }

    /// What is learnt is learnt after a second: short runs show costs only.
    fn is_full(&self) -> bool {
        self.full || (self.isolate && !self.quick)
    }

    /// What was asked for; the default as if it had been.
    fn asked(&self) -> Vec<String> {
        if self.seeds {
            return vec!["seeds".to_owned()];
        }
        match (self.names.is_empty(), self.full && !self.isolate) {
            (false, _) => self.names.clone(),
            (true, false) => vec!["quick".to_owned()],
            (true, true) => vec![suite::PROFILE_ALL.to_owned()],
        }
    }

    /// Time for all rows together.
    fn budget(&self, row_count: usize) -> Duration {
        let rows = u32::try_from(row_count).unwrap_or(u32::MAX);
        let all = self.row_max().saturating_mul(rows);
        if self.is_full() { all } else { all.min(QUICK_BUDGET) }
    }

    fn row_max(&self) -> Duration {
        if self.is_full() { FULL_ROW_MAX } else { QUICK_ROW_MAX }
    }
}

/// Status 0: measured; 1: HAKMEM itself failed in a row, nothing was measured, or not written; 2: wrong arguments;
/// 125: no library; 130: interrupted.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let all = suite::rows()?;
    if arguments.list {
        process::end_on_broken_pipe();
        let rows = match arguments.names.is_empty() {
            true => all,
            false => suite::select(&all, &arguments.names)?,
        };
        lists::rows_print(&rows, arguments.size(), arguments.budget(rows.len()));
        return Ok(0);
    }
    if arguments.peers {
        process::end_on_broken_pipe();
        lists::peers_print(&peers::known());
        return Ok(0);
    }
    let before = arguments.compare.as_deref().map(save::read).transpose()?;
    let (json, page) = outputs(arguments)?;
    let record = arguments.record.as_deref().map(Record::open).transpose()?;
    let measured = match &arguments.from {
        Some(path) => Measured { results: save::read(path)?, is_interrupted: false, written: Ok(()) },
        None => measure(arguments, &suite::select(&all, &arguments.asked())?, json)?,
    };
    let Measured { results, is_interrupted, written } = measured;
    let comparison = before.map(|before| compare::compare(&before, &results));
    // What was measured is shown whatever becomes of the files.
    let shown = table_print(&results, comparison.as_ref());
    let page = page.map(|page| page.write(html::page(&results, comparison.as_ref()).as_bytes()));
    let record = record.filter(|_| !is_interrupted && !results.is_interrupted).map(|record| record.write(&results));
    shown?;
    [Some(written), page, record].into_iter().flatten().try_for_each(save::kept)?;
    Ok(if is_interrupted { interrupt::STATUS } else { status(&results) })
}

/// The files of --json and --html: neither is what is read, nor the other.
fn outputs(arguments: &Arguments) -> Result<(Option<Output>, Option<Output>), Failure> {
    let read: Vec<PathBuf> = [&arguments.from, &arguments.compare].into_iter().flatten().cloned().collect();
    let open = |path: &PathBuf| Output::open_beside(path, &read);
    let json = arguments.json.as_ref().map(open).transpose()?;
    let page = arguments.html.as_ref().map(open).transpose()?;
    match (&json, &page) {
        (Some(one), Some(other)) if one.is_place_of(other) => {
            Err(Failure::usage("--json and --html name the same file"))
        }
        _ => Ok((json, page)),
    }
}

fn table_print(results: &Results, comparison: Option<&compare::Comparison>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let colours = colours_welcome(&stdout);
    let mut page = table::text(results, table::width(), colours);
    page += &isolate::text(results, table::width(), colours);
    if let Some(comparison) = comparison {
        page += &format!("\n{}", compare::text(comparison));
    }
    let printed = stdout.write_all(page.as_bytes()).and_then(|()| stdout.flush());
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // who reads has seen enough
        printed => printed.map_err(|error| text::output_failure(&error)),
    }
}

fn status(results: &Results) -> u8 {
    let failures = figures::failures(results, allocators::HAKMEM);
    for (row, reason) in &failures {
        text::line_to_stderr(&format!("hakmem: HAKMEM itself failed in {row}: {reason}"));
    }
    let is_measured = results.rows.iter().any(|row| row.cells.iter().any(|cell| cell.figures.is_some()));
    if !is_measured {
        text::line_to_stderr("hakmem: nothing was measured");
    }
    u8::from(!failures.is_empty() || !is_measured)
}

struct Measured {
    results: Results,
    is_interrupted: bool,
    /// What became of the file of --json.
    written: Result<(), Failure>,
}

fn measure(arguments: &Arguments, rows: &[SuiteRow], json: Option<Output>) -> Result<Measured, Failure> {
    let known = peers::known();
    let chosen = match arguments.isolate {
        true => isolate::entries(&known)?,
        false => allocators::choose(&known, arguments.with.as_deref())?,
    };
    let scratch = save::Scratch::make()?;
    let extras = Extras::find(arguments, &scratch.path)?;
    let entries = allocators::prepare(chosen, &scratch.path)?;
    let strangers = known.into_iter().flat_map(|known| known.preload);
    let strangers = strangers.chain(entries.iter().flat_map(|entry| entry.preload.clone())).collect();
    let interrupt = Interrupt::install()?;
    let budget = arguments.budget(rows.len());
    let settings = Settings {
        size: arguments.size(),
        command: Some(command_line()),
        asked: arguments.asked(),
        rounds_max: arguments.rounds.unwrap_or(ROUNDS_MAX),
        budget_s: budget.as_secs_f64(),
        steady_cpu: STEADY_CPU,
        steady_wall: STEADY_WALL,
        interval: statistics::INTERVAL.to_owned(),
        count_method: extras.counter.as_ref().map(|counter| counter.method().to_owned()),
        syscall_method: extras.tracer.as_ref().map(|_| syscalls::METHOD.to_owned()),
    };
    let timeout_s = arguments.timeout.unwrap_or(if arguments.is_full() { 300 } else { 60 });
    let results = results_begin(&settings, entries.iter().map(|entry| entry.about.clone()).collect());
    load_warn(&results);
    let stand = Stand {
        entries,
        strangers,
        settings,
        rounds: arguments.rounds,
        timeout_max: Duration::from_secs(timeout_s),
        scratch: scratch.path.clone(),
        interrupt: &interrupt,
        probe: RefCell::new(Probe::new()),
    };
    let mut progress = Progress::new(rows.len());
    let started = Instant::now();
    let Ok(runs) = stand.warm_up(rows, &progress) else {
        progress.end();
        return Err(Failure {
            status: interrupt::STATUS,
            line: "interrupted; nothing was measured".to_owned(),
        });
    };
    let costs = runs.into_iter().map(|run| budget::round_cost(run, stand.entries.len())).collect();
    let plan = Plan { rows, costs, budget, row_max: arguments.row_max() };
    let mut kept = Kept { stand: &stand, extras, results, json, started, written: None };
    let is_interrupted = passes::measure(&stand, &plan, &mut kept, &mut progress);
    progress.end();
    let measured = kept.end(is_interrupted);
    if is_interrupted {
        let rows = text::counted(measured.results.rows.len() as u64, "row", "rows");
        text::line_to_stderr(&format!("hakmem: interrupted; what follows is of {rows}"));
    }
    Ok(measured)
}

/// The results while they grow, in memory and in the file of --json.
struct Kept<'a> {
    stand: &'a Stand<'a>,
    extras: Extras,
    results: Results,
    json: Option<Output>,
    started: Instant,
    written: Option<Instant>,
}

impl passes::Keeper for Kept<'_> {
    fn count(&mut self, row: &SuiteRow, measured: &mut Row, progress: &Progress) -> Result<(), Interrupted> {
        self.extras.count(self.stand, row, measured, progress)
    }

    fn keep(&mut self, courses: &[Course]) {
        let begun = courses.iter().filter(|course| course.has_begun());
        self.results.rows = begun.map(|course| course.row.clone()).collect();
        self.results.wall_s = self.started.elapsed().as_secs_f64();
        let is_due = self.written.is_none_or(|written| written.elapsed() >= WRITE_INTERVAL);
        let is_once = self.json.as_ref().is_some_and(|json| !json.is_replaced()); // at the end
        if is_due && !is_once {
            // Where it cannot be written now it may be later: the end tells.
            let _ = self.write();
        }
    }
}

impl Kept<'_> {
    fn write(&mut self) -> Result<(), Failure> {
        self.results.machine.load_after = machine::load();
        self.results.summary = figures::summarize(&self.results.rows, &self.results.allocators);
        self.written = Some(Instant::now());
        self.json.as_ref().map_or(Ok(()), |json| json.write(save::text(&self.results).as_bytes()))
    }

    fn end(mut self, is_interrupted: bool) -> Measured {
        self.results.is_interrupted = is_interrupted;
        let written = self.write();
        Measured { results: self.results, is_interrupted, written }
    }
}

/// What to type to have this again.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| text::quote(&argument));
    [vec!["hakmem".to_owned()], arguments.collect()].concat().join(" ")
}

/// What is counted beside the measuring, where it was asked for.
struct Extras {
    counter: Option<counted::Counter>,
    tracer: Option<syscalls::Tracer>,
}

impl Extras {
    fn find(arguments: &Arguments, scratch: &Path) -> Result<Extras, Failure> {
        Ok(Extras {
            counter: (arguments.count || arguments.seeds)
                .then(|| counted::Counter::find(scratch))
                .transpose()?,
            tracer: (arguments.syscalls || arguments.seeds)
                .then(|| syscalls::Tracer::find(scratch))
                .transpose()?,
        })
    }

    fn count(
        &self,
        stand: &Stand,
        row: &SuiteRow,
        measured: &mut Row,
        progress: &Progress,
    ) -> Result<(), Interrupted> {
        if let Some(counter) = &self.counter {
            counted::row_count(stand, row, counter, measured, progress)?;
        }
        if let Some(tracer) = &self.tracer {
            syscalls::row_count(stand, row, tracer, measured, progress)?;
        }
        Ok(())
    }
}

fn results_begin(settings: &Settings, allocators: Vec<results::Allocator>) -> Results {
    Results {
        schema: SCHEMA,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        started: machine::now_text(),
        wall_s: 0.0,
        is_interrupted: false,
        machine: machine::describe(),
        settings: settings.clone(),
        allocators,
        rows: Vec::new(),
        summary: Vec::new(),
    }
}

fn load_warn(results: &Results) {
    let machine = &results.machine;
    if machine.load_before > 0.3 * f64::from(machine.processors) {
        text::line_to_stderr(&format!(
            "hakmem: this machine is busy (load {:.1} on {}): times will be off",
            machine.load_before,
            text::counted(u64::from(machine.processors), "processor", "processors")
        ));
    }
}
