//! figures.rs - the tables: what stands behind the marks of one row, in numbers.

use crate::bench::results::{Allocator, Cell, Figures, Ratio, Results, Row, Spread};
use crate::bench::words::{self, Unit};
use serde::Serialize;
use std::collections::BTreeMap;

/// All tables of the page look alike: named lines, numbers, the best of each column marked.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    pub caption: String,
    pub heads: Vec<Head>,
    pub lines: Vec<TableLine>,
}

#[derive(Debug, Default, Serialize)]
pub struct Head {
    pub text: String,
    /// Of an allocator, whose mark then stands beside it.
    pub index: Option<usize>,
}

#[derive(Debug, Default, Serialize)]
pub struct TableLine {
    pub name: String,
    pub index: Option<usize>,
    pub cells: Vec<Text>,
    /// Instead of the cells.
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Text {
    pub text: String,
    pub is_best: bool,
}

impl Text {
    pub fn none() -> Text {
        Text { text: words::NONE.to_owned(), is_best: false }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text { text, is_best: false }
    }
}

impl Head {
    pub fn new(text: impl Into<String>) -> Head {
        Head { text: text.into(), index: None }
    }

    /// The columns of a table that has one an allocator.
    pub fn allocators(results: &Results) -> Vec<Head> {
        let head = |(index, allocator): (usize, &Allocator)| Head {
            text: words::allocator(&allocator.name).to_owned(),
            index: Some(index),
        };
        results.allocators.iter().enumerate().map(head).collect()
    }
}

/// Numbers of one line of such a table, the smallest marked; None where there is none.
pub fn numbers(values: &[Option<f64>], text: impl Fn(f64) -> String) -> Vec<Text> {
    let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
    let smallest = values.iter().filter_map(finite).fold(f64::INFINITY, f64::min);
    let is_race = values.iter().filter_map(finite).count() > 1;
    let cell = |value: &Option<f64>| {
        finite(value).map_or_else(Text::none, |value| Text {
            text: text(value),
            is_best: is_race && value <= smallest,
        })
    };
    values.iter().map(cell).collect()
}

/// What is behind one row.
#[derive(Debug, Serialize)]
pub struct Details {
    /// Program, arguments, clock, rounds.
    pub how: String,
    pub arguments: String,
    pub figures: Table,
    /// Results within the run, if the workload has such.
    pub parts: Option<Table>,
}

pub fn details(results: &Results, row: &Row) -> Details {
    let version = row.program_version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let sleeps = match row.sleeps_s {
        seconds if seconds > 0.0 => format!("; sleeps {} s, which are in no time", words::digits(seconds)),
        _ => String::new(),
    };
    let how = format!(
        "{}{version}; judged by {}{sleeps}; {} after a warm-up; profiles: {}.",
        row.program,
        words::clock(row.time),
        crate::text::counted(u64::from(row.rounds), "round", "rounds"),
        if row.profiles.is_empty() { "none".to_owned() } else { row.profiles.join(", ") }
    );
    Details {
        how,
        arguments: row.arguments.join(" "),
        figures: figures(results, row),
        parts: parts(results, row),
    }
}

fn smallest(row: &Row, of: impl Fn(&Figures) -> f64) -> f64 {
    let values = row.cells.iter().filter_map(|cell| cell.figures.as_ref()).map(of);
    values.filter(|value| value.is_finite()).fold(f64::INFINITY, f64::min)
}

fn figures(results: &Results, row: &Row) -> Table {
    let time = Unit::of_ns(smallest(row, |figures| figures.time_ns.median));
    let memory = Unit::of_kb(smallest(row, |figures| figures.peak_kb.median));
    let after =
        Unit::of_kb(smallest(row, |figures| figures.resident_kb.map_or(f64::INFINITY, |kb| kb.median)));
    let has_after =
        row.cells.iter().any(|cell| cell.figures.is_some_and(|figures| figures.resident_kb.is_some()));
    let extras = &row.shows;

    let mut heads = vec![format!("time/op, {}", time.name), "over the best".into(), "least to most".into()];
    if row.rate {
        heads.push("rate".into());
    }
    heads.extend([format!("peak, {}", memory.name), "over the best".into()]);
    if has_after {
        heads.push(format!("after, {}", after.name));
    }
    heads.extend(["page faults".into(), "CPU/wall".into(), "runs".into(), "steady".into()]);
    heads.extend(extras.iter().map(|name| name.replace('_', " ")));

    let mut cells: Vec<(usize, &Cell)> = row.cells.iter().enumerate().collect();
    let median = |cell: &Cell| cell.figures.map_or(f64::INFINITY, |figures| figures.time_ns.median);
    cells.sort_by(|a, b| median(a.1).total_cmp(&median(b.1)));
    let line = |(at, cell): (usize, &Cell)| {
        let index =
            results.allocators.iter().position(|allocator| allocator.name == cell.allocator).unwrap_or(at);
        let mut line = TableLine {
            name: words::allocator(&cell.allocator).to_owned(),
            index: Some(index),
            error: cell.error.clone(),
            ..TableLine::default()
        };
        let Some(figures) = &cell.figures else {
            line.error.get_or_insert("no figures".to_owned());
            return line;
        };
        let is_best = |best: &Option<String>| best.as_ref() == Some(&cell.allocator);
        line.cells.push(Text { is_best: is_best(&row.best_time), ..spread(&figures.time_ns, &time) });
        line.cells.push(ratio(&figures.time_ratio).into());
        line.cells.push(range(time.number(figures.time_ns.min), time.number(figures.time_ns.max)).into());
        if row.rate {
            line.cells.push(words::rate(figures.rate_per_s).into());
        }
        line.cells.push(Text { is_best: is_best(&row.best_peak), ..spread(&figures.peak_kb, &memory) });
        line.cells.push(ratio(&figures.peak_ratio).into());
        if has_after {
            line.cells.push(figures.resident_kb.map_or_else(Text::none, |kb| spread(&kb, &after)));
        }
        line.cells.push(words::digits(figures.faults.median).into());
        line.cells.push(words::ratio(figures.cpu_over_wall).into());
        line.cells.push(figures.runs.to_string().into());
        line.cells.push(if figures.is_steady { "yes" } else { "no" }.to_owned().into());
        line.cells.extend(extras.iter().map(|name| extra(cell, name)));
        line
    };
    let heads = heads.into_iter().map(Head::new).collect();
    Table { caption: String::new(), heads, lines: cells.into_iter().map(line).collect() }
}

/// A median and its interval.
fn spread(spread: &Spread, unit: &Unit) -> Text {
    let interval = range(unit.number(spread.low), unit.number(spread.high));
    format!("{} ({interval})", unit.number(spread.median)).into()
}

fn ratio(ratio: &Ratio) -> String {
    format!("{} ({})", words::ratio(ratio.median), range(words::ratio(ratio.low), words::ratio(ratio.high)))
}

fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low}–{high}") }
}

fn median_of(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    (!values.is_empty()).then(|| crate::bench::compare::shift::median(&values))
}

fn extra(cell: &Cell, name: &str) -> Text {
    let values = cell.runs.iter().filter_map(|run| run.extra.get(name)).copied().collect();
    median_of(values).map_or_else(Text::none, |median| words::digits(median).into())
}

fn parts(results: &Results, row: &Row) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    let mut times: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for cell in row.cells.iter().filter(|cell| cell.figures.is_some()) {
        for part in cell.runs.iter().flat_map(|run| &run.parts) {
            if !names.contains(&part.name.as_str()) {
                names.push(&part.name);
            }
            if part.ops > 0 {
                times
                    .entry((&part.name, &cell.allocator))
                    .or_default()
                    .push(part.ns as f64 / part.ops as f64);
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let line = |name: &&str| {
        let of = |allocator: &Allocator| {
            median_of(times.get(&(*name, allocator.name.as_str())).cloned().unwrap_or_default())
        };
        let values: Vec<Option<f64>> = results.allocators.iter().map(of).collect();
        TableLine { name: (*name).to_owned(), cells: numbers(&values, words::digits), ..TableLine::default() }
    };
    Some(Table {
        caption: "Parts of the run: nanoseconds per operation, medians".to_owned(),
        heads: Head::allocators(results),
        lines: names.iter().map(line).collect(),
    })
}
