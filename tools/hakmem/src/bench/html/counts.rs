//! counts.rs - what was counted when asked: instructions, branches and misses per operation, system calls.

use super::figures::{Head, Table, TableLine, Text, numbers};
use crate::bench::results::{Allocator, Cell, Costs, Counts, Results, Row};
use crate::bench::words;
use crate::text::count;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct Counted {
    pub method: String,
    pub notes: Vec<String>,
    /// The first one is what most readers want; the others are folded away.
    pub tables: Vec<Table>,
}

struct Metric {
    caption: &'static str,
    of: fn(&Costs) -> f64,
}

const METRICS: [Metric; 6] = [
    Metric { caption: "Instructions", of: |costs| costs.instructions },
    Metric { caption: "Branches", of: |costs| costs.branches },
    Metric { caption: "Mispredicted branches", of: |costs| costs.branch_misses },
    Metric { caption: "Reads and writes of memory", of: |costs| costs.d1_accesses },
    Metric { caption: "First-level data cache misses", of: |costs| costs.d1_misses },
    Metric { caption: "Last-level cache misses", of: |costs| costs.ll_misses },
];

pub fn counts(results: &Results) -> Option<Counted> {
    let is_counted =
        |row: &&Row| row.cells.iter().any(|cell| cell.counts.is_some() || cell.counts_error.is_some());
    let rows: Vec<&Row> = results.rows.iter().filter(is_counted).collect();
    if rows.is_empty() {
        return None;
    }
    let all = || rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.counts.as_ref());
    let is_without_harness = all().count() > 0 && all().all(|counts| counts.without_harness.is_some());
    let shares: &[bool] = if is_without_harness { &[true, false] } else { &[false] };
    let mut tables = Vec::new();
    for is_allocator_only in shares {
        for metric in &METRICS {
            tables.push(counts_table(results, &rows, metric, *is_allocator_only));
        }
    }
    let mut notes = vec![
        "Start and end of the process are left out: what more operations cost more, divided by how many more they are."
            .to_owned(),
    ];
    if is_without_harness {
        notes.push(
            "The allocator's and the C library's part alone; the tables after those have the whole process."
                .into(),
        );
    }
    notes.extend(errors(&rows, |cell| cell.counts_error.as_deref()));
    let method = results.settings.count_method.clone().unwrap_or_else(|| "by an unnamed method".to_owned());
    Some(Counted { method, notes, tables })
}

fn counts_table(results: &Results, rows: &[&Row], metric: &Metric, is_allocator_only: bool) -> Table {
    let costs =
        |counts: &'_ Counts| if is_allocator_only { counts.without_harness } else { Some(counts.total) };
    let line = |row: &&Row| {
        let of = |allocator: &Allocator| {
            let cell = row.cells.iter().find(|cell| cell.allocator == allocator.name)?;
            costs(cell.counts.as_ref()?).map(|costs| (metric.of)(&costs))
        };
        let values: Vec<Option<f64>> = results.allocators.iter().map(of).collect();
        TableLine { name: row.name.clone(), cells: numbers(&values, words::digits), ..TableLine::default() }
    };
    let of_what = if is_allocator_only { "the allocator's part" } else { "the whole process" };
    Table {
        caption: format!("{} per operation, {of_what}", metric.caption),
        heads: Head::allocators(results),
        lines: rows.iter().map(line).collect(),
    }
}

fn errors(rows: &[&Row], of: impl Fn(&Cell) -> Option<&str>) -> Vec<String> {
    let mut errors = Vec::new();
    for row in rows {
        for cell in &row.cells {
            if let Some(error) = of(cell) {
                errors.push(format!(
                    "Not counted: {}, {}: {error}",
                    row.name,
                    words::allocator(&cell.allocator)
                ));
            }
        }
    }
    errors
}

pub fn syscalls(results: &Results) -> Option<Counted> {
    let is_counted =
        |row: &&Row| row.cells.iter().any(|cell| cell.syscalls.is_some() || cell.syscalls_error.is_some());
    let rows: Vec<&Row> = results.rows.iter().filter(is_counted).collect();
    if rows.is_empty() {
        return None;
    }
    let sum = |row: &Row, allocator: &str| {
        let cell = row.cells.iter().find(|cell| cell.allocator == allocator)?;
        Some(cell.syscalls.as_ref()?.values().sum::<u64>() as f64)
    };
    let whole = |value: f64| count(value as u64);
    let total = |row: &&Row| {
        let values: Vec<Option<f64>> =
            results.allocators.iter().map(|allocator| sum(row, &allocator.name)).collect();
        TableLine { name: row.name.clone(), cells: numbers(&values, whole), ..TableLine::default() }
    };
    let mut tables = vec![Table {
        caption: "System calls of one run, all together".to_owned(),
        heads: Head::allocators(results),
        lines: rows.iter().map(total).collect(),
    }];
    tables.extend(rows.iter().map(|row| calls_table(results, row)));
    let method = results.settings.syscall_method.clone().unwrap_or_else(|| "by an unnamed method".to_owned());
    let mut notes = vec!["Start and end of the process are in these numbers.".to_owned()];
    notes.extend(errors(&rows, |cell| cell.syscalls_error.as_deref()));
    Some(Counted { method, notes, tables })
}

/// Which calls one row makes, the most frequent first.
fn calls_table(results: &Results, row: &Row) -> Table {
    let calls =
        |allocator: &str| row.cells.iter().find(|cell| cell.allocator == allocator)?.syscalls.as_ref();
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for (call, number) in row.cells.iter().filter_map(|cell| cell.syscalls.as_ref()).flatten() {
        let most = most.entry(call).or_default();
        *most = (*most).max(*number);
    }
    let mut names: Vec<(&str, u64)> = most.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let line = |(name, _): &(&str, u64)| {
        let cell = |allocator: &Allocator| match calls(&allocator.name) {
            Some(calls) => count(calls.get(*name).copied().unwrap_or(0)).into(),
            None => Text::none(),
        };
        TableLine {
            name: (*name).to_owned(),
            cells: results.allocators.iter().map(cell).collect(),
            ..TableLine::default()
        }
    };
    Table {
        caption: format!("{}, by call", row.name),
        heads: Head::allocators(results),
        lines: names.iter().map(line).collect(),
    }
}
