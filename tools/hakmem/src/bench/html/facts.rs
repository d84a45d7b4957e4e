//! facts.rs - where the numbers come from: machine, method, allocators, how to repeat; what to be careful about; and
//! what changed since an earlier file.

use super::figures::{Head, Table, TableLine, Text};
use super::marks::FOCUS;
use crate::bench::compare::{self, Change, Comparison, Verdict};
use crate::bench::results::{Allocator, Results, Size};
use crate::bench::words;
use crate::text::{bytes, counted};
use serde::Serialize;

/// Fewer processors than this say little of how anything scales.
const PROCESSORS_FEW: u32 = 8;
/// Of the processors; a load before the first run is somebody else's.
const LOAD_SHARE_MAX: f64 = 0.25;

pub fn warnings(results: &Results) -> Vec<String> {
    let machine = &results.machine;
    let mut warnings = Vec::new();
    if results.is_interrupted {
        warnings.push("The run was interrupted: these are the rows that there was time for.".to_owned());
    }
    if machine.processors < PROCESSORS_FEW {
        warnings.push(format!(
            "The machine has {}: rows with more threads show how threads take turns, and nothing here shows how an \
             allocator scales.",
            counted(u64::from(machine.processors), "processor", "processors")
        ));
    }
    if machine.load_before > f64::from(machine.processors) * LOAD_SHARE_MAX {
        let load = words::ratio(machine.load_before);
        warnings.push(format!("The machine was not idle: its load was {load} before the first run."));
    }
    let unsteady = results.rows.iter().filter(|row| !row.is_steady && row.best_time.is_some()).count();
    if unsteady > 0 {
        let rows = counted(unsteady as u64, "row is", "rows are");
        warnings.push(format!(
            "{rows} not steady: the intervals stayed wider than asked for. Each such row is marked."
        ));
    }
    let partial: Vec<String> = results
        .summary
        .iter()
        .filter(|summary| !summary.failed.is_empty())
        .map(|summary| words::allocator(&summary.allocator).to_owned())
        .collect();
    if !partial.is_empty() {
        let mean = if partial.len() == 1 { "Its mean is" } else { "Their means are" };
        warnings
            .push(format!("{} failed in some rows. {mean} over the other rows only.", words::list(&partial)));
    }
    warnings
}

#[derive(Debug, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub text: String,
}

pub fn facts(results: &Results) -> Vec<Fact> {
    let (machine, settings) = (&results.machine, &results.settings);
    let fact = |name, text: String| Fact { name, text };
    let size = match settings.size {
        Size::Quick => "short arguments (--quick)",
        Size::Full => "long arguments (--full)",
    };
    let percent = |share: f64| format!("{}%", words::digits(share * 100.0));
    vec![
        fact("Date", format!("{}, {} s in all", results.started, words::digits(results.wall_s))),
        fact("Tool", format!("hakmem {}", results.tool)),
        fact(
            "Machine",
            format!(
                "{}, {}, {} of memory, {}",
                machine.processor,
                counted(u64::from(machine.processors), "processor", "processors"),
                bytes(machine.memory_bytes),
                machine.architecture
            ),
        ),
        fact("System", format!("{}, kernel {}, huge pages {}", machine.system, machine.kernel, machine.huge_pages)),
        fact(
            "Load",
            format!(
                "{} before the first run, {} after the last",
                words::ratio(machine.load_before),
                words::ratio(machine.load_after)
            ),
        ),
        fact("Measured", format!("{}; {size}", settings.asked.join(" "))),
        fact(
            "Order",
            format!(
                "Interleaved: each round runs every allocator once that is not known well enough yet, and ratios are \
                 taken within a round. A round to warm up, then {} at most, in three passes over the rows. A run waits \
                 until nobody else uses the memory, for 0.1 s at most, and is set aside if somebody did at its end, as \
                 long as a third of the runs is left.",
                counted(u64::from(settings.rounds_max), "round", "rounds")
            ),
        ),
        fact(
            "Steady",
            format!(
                "Half the interval of every ratio of time is at most {} for processor time, {} for wall time; otherwise \
                 the row is marked.",
                percent(settings.steady_cpu),
                percent(settings.steady_wall)
            ),
        ),
        fact("Intervals", settings.interval.clone()),
        fact(
            "Proof",
            "Every run lists the shared objects that it had mapped; a run without its allocator among them is a failure, \
             and a failure is part of no mean."
                .to_owned(),
        ),
        fact(
            "Memory",
            "Read from the kernel: the largest resident size of the process less the workload's own tables, and what was \
             resident after the work. 1 MiB is 1,048,576 bytes."
                .to_owned(),
        ),
    ]
}

pub fn allocators(results: &Results) -> Table {
    let line = |(index, allocator): (usize, &Allocator)| TableLine {
        name: words::allocator(&allocator.name).to_owned(),
        index: Some(index),
        cells: [
            allocator.version.clone(),
            source(allocator),
            allocator.path.clone().unwrap_or("the C library's own".to_owned()),
            allocator.sha256.clone().unwrap_or("unknown".to_owned()),
        ]
        .map(Text::from)
        .to_vec(),
        error: None,
    };
    Table {
        caption: String::new(),
        heads: ["version", "from", "file", "sha256"].map(Head::new).into(),
        lines: results.allocators.iter().enumerate().map(line).collect(),
    }
}

/// Where it comes from, how it was built and what was set for it.
fn source(allocator: &Allocator) -> String {
    let set: Vec<String> =
        allocator.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let set = (!set.is_empty()).then(|| format!("run with {}", set.join(" ")));
    let parts = [Some(allocator.source.clone()), allocator.options.clone(), allocator.mode.clone(), set];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The command line that measures the same again.
pub fn repeat(results: &Results) -> String {
    let settings = &results.settings;
    if let Some(command) = &settings.command {
        return command.clone();
    }
    let mut line = vec!["hakmem".to_owned(), "bench".to_owned()];
    line.extend(settings.asked.iter().map(crate::text::quote));
    let peers: Vec<&str> =
        results.allocators.iter().map(|peer| peer.name.as_str()).filter(|name| *name != FOCUS).collect();
    if !peers.is_empty() {
        line.extend(["--with".to_owned(), crate::text::quote(&peers.join(","))]);
    }
    line.push(if settings.size == Size::Full { "--full" } else { "--quick" }.to_owned());
    line.extend(["--json", "results.json", "--html", "results.html"].map(str::to_owned));
    line.join(" ")
}

/// The comparison, for the page.
#[derive(Debug, Serialize)]
pub struct Changes {
    pub under: String,
    pub heading: String,
    pub method: String,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
    pub changed: Table,
    pub drifted: Table,
    pub drifted_words: String,
    pub lists: Vec<(&'static str, Vec<String>)>,
}

pub fn changes(comparison: &Comparison) -> Changes {
    let mut notes = comparison.binaries.clone();
    notes.push(compare::yardstick(comparison));
    notes.extend(comparison.repeats.as_ref().map(compare::repeats_sentence));
    let sentence = |note: String| {
        let mut letters = note.chars();
        let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        format!("{first}{}.", letters.as_str())
    };
    Changes {
        under: format!("{} (old), {} (new)", comparison.old_started, comparison.new_started),
        heading: compare::heading(comparison),
        method: compare::method(comparison),
        warnings: comparison.warnings.clone(),
        notes: notes.into_iter().map(sentence).collect(),
        changed: changes_table(&comparison.of(Verdict::Changed)),
        drifted: changes_table(&comparison.of(Verdict::Drifted)),
        drifted_words: compare::drifted_sentence(comparison),
        lists: comparison.lists().into_iter().map(|(title, lines)| (title, lines.to_vec())).collect(),
    }
}

fn changes_table(changes: &[&Change]) -> Table {
    let line = |change: &&Change| {
        let [row, rest @ ..] = compare::columns(change);
        // Less is better in all that is compared.
        let is_better = change.shift.is_some_and(|shift| shift.ratio < 1.0);
        let mut cells = rest.map(Text::from).to_vec();
        if let Some(cell) = cells.get_mut(4) {
            cell.is_best = is_better;
        }
        TableLine { name: row, cells, ..TableLine::default() }
    };
    let heads = compare::COLUMNS[1..].iter().copied().map(Head::new).collect();
    Table { caption: String::new(), heads, lines: changes.iter().map(line).collect() }
}
