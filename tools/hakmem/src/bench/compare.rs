//! compare.rs - what changed between two result files, and whether it is more than noise.
//!
//! Two runs of the suite lie hours or days apart, and the machine may be faster or slower as a whole by then. So the
//! allocators whose shared object is the same in both files are the yardstick: every time is taken relative to theirs
//! in the same round, and to how they changed. What is left is tested (compare/shift.rs) on the single runs. Memory needs no yardstick.
//! What the unchanged allocators still seem to change by is the size below which nothing is called a change.
//! Owns:     the comparison; its words for a terminal are in compare/terminal.rs, for the page in html/.
//! Rejected: comparing medians with a limit of some percent, which finds noise in short rows and misses shifts in
//!           long ones; comparing against the row's best, which changes hands.

use super::figures;
use super::results::{Allocator, Cell, Machine, Results, Row, Run, SCHEMA, Time};
use super::words;
use serde::Serialize;
use serde_json::Value;
use shift::{Shift, shift};
use std::collections::BTreeMap;

pub mod shift;
mod terminal;
#[cfg(test)]
mod tests;

pub use terminal::{COLUMNS, columns, drifted_sentence, heading, method, repeats_sentence, text, yardstick};

/// Below this no change is worth a line, however certain it is.
const CHANGE_MIN: f64 = 0.01;
/// So many comparisons of unchanged allocators are needed to learn from them what two sessions differ by.
const UNCHANGED_COUNT_MIN: usize = 20;
const UNCHANGED_SHARE: f64 = 0.95;
/// A command line is the longest text that we write. Tables are as wide as their names, and format! ends at 65,535.
const TEXT_BYTES_MAX: usize = 32 << 10;
pub const RUNS_MAX: usize = 1000;
/// What two runs on an idle machine are to agree within.
const REPEAT_LIMIT: f64 = 1.03;

#[derive(Debug, Serialize)]
pub struct Comparison {
    pub old_started: String,
    pub new_started: String,
    /// One sentence each: why the files may not be comparable.
    pub warnings: Vec<String>,
    /// One sentence each: which allocators are another binary now.
    pub binaries: Vec<String>,
    /// The allocators that are the same in both files.
    pub yardstick: Vec<String>,
    /// How much longer they took, geometric mean over all rows.
    pub drift: Option<f64>,
    pub floors: Vec<Floor>,
    pub repeats: Option<Repeats>,
    /// Everything that is in both files, largest change first.
    pub changes: Vec<Change>,
    /// "storm/1000, snmalloc: fails now: crashed: SIGSEGV".
    pub turned: Vec<String>,
    /// "sqlite: other arguments".
    pub unlike: Vec<String>,
    pub only_old: Vec<String>,
    pub only_new: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Time,
    Peak,
    After,
}

impl What {
    pub const ALL: [What; 3] = [What::Time, What::Peak, What::After];

    pub fn name(self) -> &'static str {
        match self {
            What::Time => "time",
            What::Peak => "peak memory",
            What::After => "memory after",
        }
    }
}

/// Changes up to this size (a ratio above 1) are what the unchanged allocators show as well.
#[derive(Debug, Serialize)]
pub struct Floor {
    pub what: What,
    pub ratio: f64,
    /// Comparisons of unchanged allocators that it was learnt from; 0: it is the general limit.
    pub learnt_from: usize,
}

/// How well the stand repeats itself: of the allocators that are the same in both files, in rows of one thread, without
/// those that are so far behind that nobody asks for percents.
#[derive(Debug, Serialize)]
pub struct Repeats {
    pub times: usize,
    /// Of them, not further from each other than REPEAT_LIMIT.
    pub within: usize,
    /// The same of rows that were steady in both files: the others say of themselves (~) that a ratio is not known.
    pub steady_times: usize,
    pub steady_within: usize,
    /// 95% of all of them are not further from each other than this ratio.
    pub most: f64,
    /// "lru_cache, mimalloc3", the furthest first.
    pub beyond: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// More than noise, and this allocator is another binary than before (or nobody knows).
    Changed,
    /// More than noise by the test, but the binary is the same: the machine, the system, or chance.
    Drifted,
    Noise,
    TooFew,
}

#[derive(Debug, Serialize)]
pub struct Change {
    pub row: String,
    pub allocator: String,
    pub what: What,
    /// Medians as measured: nanoseconds per operation, KiB.
    pub old: f64,
    pub new: f64,
    pub runs_old: usize,
    pub runs_new: usize,
    /// Of times: freed of what the yardstick changed by.
    pub shift: Option<Shift>,
    pub is_same_binary: bool,
    pub is_corrected: bool,
    pub verdict: Verdict,
}

impl Change {
    /// How far from 1, up or down.
    pub fn size(&self) -> f64 {
        self.shift.map_or(0.0, |shift| shift.ratio.ln().abs())
    }
}

/// A result file's text; `name` is for the line that says what is wrong with it.
pub fn read(text: &str, name: &str) -> Result<Results, String> {
    #[derive(serde::Deserialize)]
    struct Door {
        schema: Option<u32>,
        #[serde(flatten)]
        rest: Value,
    }
    let name = crate::text::quote(name);
    let damaged = |error: serde_json::Error| format!("{name} is damaged: {error}");
    if text.trim().is_empty() {
        return Err(format!("{name} is empty"));
    }
    let Door { schema, rest } = serde_json::from_str(text).map_err(damaged)?;
    match schema {
        None => Err(format!("{name} is not a result file of hakmem bench: it has no field 'schema'")),
        Some(SCHEMA) if text_longest(&rest) > TEXT_BYTES_MAX => {
            Err(format!("{name} is damaged: a text in it is longer than {TEXT_BYTES_MAX} bytes"))
        }
        Some(SCHEMA) => {
            let results: Results = serde_json::from_str(text).map_err(damaged)?;
            let runs = results.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.runs.len()).max().unwrap_or(0);
            // Intervals compare each with each.
            if runs > RUNS_MAX { Err(format!("{name} has {runs} runs of one row; {RUNS_MAX} at most can be compared")) } else { Ok(results) }
        }
        Some(schema) => {
            let age = if schema < SCHEMA { "an older" } else { "a newer" };
            Err(format!("{name} is from {age} hakmem bench: it has schema {schema}, this one reads {SCHEMA}"))
        }
    }
}

/// Bytes of the longest text or name of a field.
fn text_longest(value: &Value) -> usize {
    let longest = match value {
        Value::String(text) => Some(text.len()),
        Value::Array(items) => items.iter().map(text_longest).max(),
        Value::Object(fields) => fields.iter().map(|(name, field)| name.len().max(text_longest(field))).max(),
        _ => None,
    };
    longest.unwrap_or(0)
}

pub fn compare(old: &Results, new: &Results) -> Comparison {
    let yardstick: Vec<String> = both(old, new)
        .filter(|(before, now)| is_same_binary(before, now))
        .map(|(before, _)| before.name.clone())
        .collect();
    let mut comparison = Comparison {
        old_started: old.started.clone(),
        new_started: new.started.clone(),
        warnings: warnings(old, new),
        binaries: both(old, new).filter_map(|(before, now)| binary_sentence(before, now)).collect(),
        yardstick,
        drift: None,
        floors: Vec::new(),
        repeats: None,
        changes: Vec::new(),
        turned: Vec::new(),
        unlike: Vec::new(),
        only_old: missing(old, new),
        only_new: missing(new, old),
    };
    let mut drifts = Vec::new();
    for before in &old.rows {
        let Some(now) = new.rows.iter().find(|row| row.name == before.name) else { continue };
        if before.skipped.is_some() && now.skipped.is_some() {
            continue;
        }
        if let Some(why) = unlike(before, now) {
            comparison.unlike.push(format!("{}: {why}", before.name));
            continue;
        }
        row_compare(&mut comparison, before, now, &mut drifts);
    }
    if !drifts.is_empty() {
        comparison.drift = Some((drifts.iter().sum::<f64>() / drifts.len() as f64).exp());
    }
    comparison.floors = What::ALL.iter().map(|what| floor(*what, &comparison.changes)).collect();
    for change in &mut comparison.changes {
        let floor = comparison.floors.iter().find(|floor| floor.what == change.what);
        change.verdict = verdict(change, floor.map_or(1.0 + CHANGE_MIN, |floor| floor.ratio));
    }
    comparison.changes.sort_by(|a, b| b.size().total_cmp(&a.size()));
    comparison.repeats = repeats(&comparison.changes, old, new);
    comparison
}

fn repeats(changes: &[Change], old: &Results, new: &Results) -> Option<Repeats> {
    let is_asked = |results: &Results, change: &Change| {
        let row = results.rows.iter().find(|row| row.name == change.row && row.time == Time::Cpu);
        let cell = row.and_then(|row| row.cells.iter().find(|cell| cell.allocator == change.allocator));
        let figures = cell.and_then(|cell| cell.figures.as_ref());
        figures.is_some_and(|figures| !figures::is_far_behind(figures))
    };
    let asked: Vec<&Change> = changes
        .iter()
        .filter(|change| change.what == What::Time && change.is_same_binary && change.is_corrected)
        .filter(|change| is_asked(old, change) && is_asked(new, change))
        .collect();
    let beyond: Vec<String> = asked
        .iter()
        .filter(|change| change.size() > REPEAT_LIMIT.ln())
        .map(|change| format!("{}, {}", change.row, change.allocator))
        .collect();
    let most = asked.get(asked.len() - (asked.len() as f64 * UNCHANGED_SHARE).ceil() as usize)?;
    let is_steady = |results: &Results, change: &Change| {
        results.rows.iter().any(|row| row.name == change.row && row.is_steady)
    };
    let steady: Vec<&&Change> =
        asked.iter().filter(|change| is_steady(old, change) && is_steady(new, change)).collect();
    Some(Repeats {
        times: asked.len(),
        within: asked.len() - beyond.len(),
        steady_times: steady.len(),
        steady_within: steady.iter().filter(|change| change.size() <= REPEAT_LIMIT.ln()).count(),
        most: most.size().exp(),
        beyond,
    })
}

/// The allocators that both files have, by name.
fn both<'a>(old: &'a Results, new: &'a Results) -> impl Iterator<Item = (&'a Allocator, &'a Allocator)> {
    old.allocators
        .iter()
        .filter_map(|before| Some((before, new.allocators.iter().find(|now| now.name == before.name)?)))
}

fn is_same_binary(before: &Allocator, now: &Allocator) -> bool {
    before.sha256.is_some() && before.sha256 == now.sha256
}

fn binary_sentence(before: &Allocator, now: &Allocator) -> Option<String> {
    let name = words::allocator(&before.name);
    match (&before.sha256, &now.sha256) {
        (Some(was), Some(is)) if was == is => None,
        (Some(was), Some(is)) => Some(format!(
            "{name} is another binary: {} {} then, {} {} now",
            before.version,
            words::checksum(Some(was)),
            now.version,
            words::checksum(Some(is))
        )),
        _ => Some(format!("{name} may be another binary: not both files have its checksum")),
    }
}

/// What `these` has and `others` has not: rows, allocators.
fn missing(these: &Results, others: &Results) -> Vec<String> {
    let allocators = these.allocators.iter().map(|allocator| &allocator.name);
    let allocators = allocators.filter(|name| others.allocators.iter().all(|other| other.name != **name));
    let rows = these.rows.iter().map(|row| &row.name);
    let rows = rows.filter(|name| others.rows.iter().all(|other| other.name != **name));
    allocators.map(|name| format!("allocator {name}")).chain(rows.map(|name| format!("row {name}"))).collect()
}

fn warnings(old: &Results, new: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    let machine = machine_differences(&old.machine, &new.machine);
    if !machine.is_empty() {
        warnings.push(format!("The machine is another one, or set up otherwise: {}.", machine.join("; ")));
    }
    if old.settings.size != new.settings.size {
        let name = |results: &Results| format!("{:?}", results.settings.size).to_lowercase();
        warnings.push(format!(
            "The settings differ: {} then, {} now. Rows with other arguments are not compared.",
            name(old),
            name(new)
        ));
    }
    if old.started > new.started {
        warnings.push(format!(
            "The older file is the one compared with: {} against {}.",
            new.started, old.started
        ));
    }
    for (results, name) in [(old, "The old"), (new, "The new")] {
        if results.is_interrupted {
            warnings.push(format!("{name} run was interrupted: it has the rows that there was time for."));
        }
    }
    warnings
}

fn machine_differences(old: &Machine, new: &Machine) -> Vec<String> {
    let gib = |bytes: u64| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30));
    let fields = [
        ("processor", old.processor.clone(), new.processor.clone()),
        ("processors", old.processors.to_string(), new.processors.to_string()),
        ("memory", gib(old.memory_bytes), gib(new.memory_bytes)),
        ("architecture", old.architecture.clone(), new.architecture.clone()),
        ("system", old.system.clone(), new.system.clone()),
        ("kernel", old.kernel.clone(), new.kernel.clone()),
        ("huge pages", old.huge_pages.clone(), new.huge_pages.clone()),
    ];
    let differ = fields.into_iter().filter(|(_, was, is)| was != is);
    differ.map(|(name, was, is)| format!("{name} {was} then, {is} now")).collect()
}

/// Why two rows of the same name do not measure the same thing.
fn unlike(before: &Row, now: &Row) -> Option<String> {
    let joined = |row: &Row| row.arguments.join(" ");
    if before.program != now.program || before.is_real != now.is_real {
        return Some(format!("another program, {} then, {} now", before.program, now.program));
    }
    if before.arguments != now.arguments {
        return Some(format!("other arguments, '{}' then, '{}' now", joined(before), joined(now)));
    }
    if before.time != now.time {
        let (was, is) = (words::clock(before.time), words::clock(now.time));
        return Some(format!("another clock, {was} then, {is} now"));
    }
    if before.program_version != now.program_version {
        let version = |row: &Row| row.program_version.clone().unwrap_or("unknown".to_owned());
        return Some(format!(
            "another version of {}, {} then, {} now",
            now.program,
            version(before),
            version(now)
        ));
    }
    match (&before.skipped, &now.skipped) {
        (Some(why), None) => Some(format!("not measured then: {why}")),
        (None, Some(why)) => Some(format!("not measured now: {why}")),
        _ => None,
    }
}

fn row_compare(comparison: &mut Comparison, before: &Row, now: &Row, drifts: &mut Vec<f64>) {
    let find = |row: &'_ Row, name: &str| row.cells.iter().position(|cell| cell.allocator == name);
    // Those of the yardstick that ran in both.
    let steady: Vec<(&Cell, &Cell)> = comparison
        .yardstick
        .iter()
        .filter_map(|name| Some((&before.cells[find(before, name)?], &now.cells[find(now, name)?])))
        .filter(|(was, is)| was.error.is_none() && is.error.is_none())
        .filter(|(was, is)| !was.runs.is_empty() && !is.runs.is_empty())
        .collect();
    for (was, is) in &steady {
        let log = |row: &Row, cell: &Cell| {
            shift::median(&time_logs(row.time, cell).into_values().collect::<Vec<_>>())
        };
        let drift = log(now, is) - log(before, was);
        if drift.is_finite() {
            drifts.push(drift);
        }
    }
    for was in &before.cells {
        let Some(is) = now.cells.iter().find(|cell| cell.allocator == was.allocator) else { continue };
        let place = format!("{}, {}", before.name, words::allocator(&was.allocator));
        match (&was.error, &is.error) {
            (None, None) => {}
            (None, Some(error)) => comparison.turned.push(format!("{place}: fails now: {error}")),
            (Some(error), None) => {
                comparison.turned.push(format!("{place}: runs now; it failed then: {error}"))
            }
            (Some(_), Some(_)) => {}
        }
        if was.error.is_some() || is.error.is_some() {
            continue;
        }
        let is_same_binary = comparison.yardstick.contains(&was.allocator);
        let others: Vec<_> = steady.iter().filter(|(cell, _)| cell.allocator != was.allocator).collect();
        let olds: Vec<&Cell> = others.iter().map(|(cell, _)| *cell).collect();
        let news: Vec<&Cell> = others.iter().map(|(_, cell)| *cell).collect();
        for what in What::ALL {
            let (old_raw, new_raw) = (logs(what, before, was), logs(what, now, is));
            if old_raw.is_empty() || new_raw.is_empty() {
                continue;
            }
            let corrected = (what == What::Time && !olds.is_empty())
                .then(|| {
                    let machine = machine_log((before, &olds), (now, &news));
                    let new = level_logs(now, is, &news).into_iter().map(|log| log - machine);
                    shift(&level_logs(before, was, &olds), &new.collect::<Vec<_>>())
                })
                .flatten();
            comparison.changes.push(Change {
                row: before.name.clone(),
                allocator: was.allocator.clone(),
                what,
                old: shift::median(&old_raw).exp(),
                new: shift::median(&new_raw).exp(),
                runs_old: old_raw.len(),
                runs_new: new_raw.len(),
                shift: corrected.or_else(|| shift(&old_raw, &new_raw)),
                is_same_binary,
                is_corrected: corrected.is_some(),
                verdict: Verdict::Noise,
            });
        }
    }
}

/// Logarithms of the time per operation, by round.
fn time_logs(time: Time, cell: &Cell) -> BTreeMap<u32, f64> {
    let ns = |run: &Run| match time {
        Time::Cpu => run.cpu_ns,
        Time::Wall => run.wall_ns,
    };
    let is_whole = |run: &&Run| run.ops > 0 && ns(run) > 0;
    figures::timed(cell)
        .into_iter()
        .filter(is_whole)
        .map(|run| (run.round, (ns(run) as f64 / run.ops as f64).ln()))
        .collect()
}

fn logs(what: What, row: &Row, cell: &Cell) -> Vec<f64> {
    let kb = |run: &Run| match what {
        What::Time => None,
        // The workload's own tables are not the allocator's.
        What::Peak => Some(run.peak_kb.saturating_sub(run.tables_kb)),
        What::After => run.resident_kb.filter(|_| row.resident_after),
    };
    match what {
        What::Time => time_logs(row.time, cell).into_values().collect(),
        _ => cell.runs.iter().filter_map(kb).filter(|kb| *kb > 0).map(|kb| (kb as f64).ln()).collect(),
    }
}

/// Times freed of what each round did to `others`: how far they were from their own medians in it. Not every allocator
/// runs in every round.
fn level_logs(row: &Row, cell: &Cell, others: &[&Cell]) -> Vec<f64> {
    let others: Vec<(BTreeMap<u32, f64>, f64)> = others
        .iter()
        .map(|other| time_logs(row.time, other))
        .map(|logs| (logs.clone(), shift::median(&logs.into_values().collect::<Vec<_>>())))
        .collect();
    let of_round = |round: u32| {
        let away = others.iter().filter_map(|(logs, median)| Some(logs.get(&round)? - median));
        let away: Vec<f64> = away.collect();
        if away.is_empty() { 0.0 } else { shift::median(&away) }
    };
    time_logs(row.time, cell).into_iter().map(|(round, log)| log - of_round(round)).collect()
}

/// How much longer `news` took than `olds`, the same allocators: the machine.
fn machine_log((before, olds): (&Row, &[&Cell]), (now, news): (&Row, &[&Cell])) -> f64 {
    let median =
        |row: &Row, cell: &Cell| shift::median(&time_logs(row.time, cell).into_values().collect::<Vec<_>>());
    let drifts = olds.iter().zip(news).map(|(old, new)| median(now, new) - median(before, old));
    shift::median(&drifts.filter(|drift| drift.is_finite()).collect::<Vec<_>>())
}

/// What the unchanged allocators seem to change by: the session, not the allocator.
fn floor(what: What, changes: &[Change]) -> Floor {
    let is_alone = |change: &&Change| what == What::Time && !change.is_corrected;
    let unchanged = changes.iter().filter(|change| change.is_same_binary && change.what == what);
    let unchanged = unchanged.filter(|change| change.shift.is_some() && !is_alone(change));
    let mut sizes: Vec<f64> = unchanged.map(Change::size).collect();
    sizes.sort_by(f64::total_cmp);
    let share = (sizes.len() as f64 * UNCHANGED_SHARE).ceil() as usize;
    let learnt = (sizes.len() >= UNCHANGED_COUNT_MIN).then(|| sizes[share - 1].exp());
    match learnt.filter(|ratio| *ratio > 1.0 + CHANGE_MIN) {
        Some(ratio) => Floor { what, ratio, learnt_from: sizes.len() },
        None => Floor { what, ratio: 1.0 + CHANGE_MIN, learnt_from: 0 },
    }
}

fn verdict(change: &Change, floor: f64) -> Verdict {
    let Some(shift) = change.shift else { return Verdict::TooFew };
    match () {
        () if shift.p >= shift::ALPHA => Verdict::Noise,
        // The unchanged ones taught the limit; they are held to the general one, or they would never show.
        () if change.is_same_binary && change.size() >= (1.0 + CHANGE_MIN).ln() => Verdict::Drifted,
        () if !change.is_same_binary && change.size() > floor.ln() => Verdict::Changed,
        () => Verdict::Noise,
    }
}
