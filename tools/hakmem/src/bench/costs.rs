//! costs.rs - in the terminal: what an operation costs in instructions and misses, and which system calls were made.

use super::figures::run_median;
use super::grid::{Grid, Mark};
use super::results::{Cell, Costs, Results, Row};
use super::table::digits;
use crate::text;
use std::fmt::Write;

const WIDTH: usize = 110;

pub fn text(results: &Results) -> String {
    counts_text(results) + &syscalls_text(results)
}

fn counts_text(results: &Results) -> String {
    let rows: Vec<&Row> =
        results.rows.iter().filter(|row| row.cells.iter().any(|c| c.counts.is_some())).collect();
    let mut out = String::new();
    if let (Some(method), false) = (&results.settings.count_method, rows.is_empty()) {
        let _ = writeln!(out, "\nPer operation, {method}");
    }
    for row in rows {
        let _ = write!(out, "{}\n{}", row.name, counts_grid(row).text(WIDTH, false));
    }
    let missing = |row: &Row, cell: &Cell| {
        Some(format!(
            "  {} in {} is not counted: {}\n",
            cell.allocator,
            row.name,
            cell.counts_error.as_ref()?
        ))
    };
    out.extend(results.rows.iter().flat_map(|row| row.cells.iter().filter_map(|cell| missing(row, cell))));
    out
}

fn counts_grid(row: &Row) -> Grid {
    let mut grid = Grid::new(&["  allocator"]);
    let headers = [
        "ns",
        "instr.",
        "branches",
        "missed",
        "accesses",
        "D1 misses",
        "LL misses",
        "faults",
        "syscalls",
        "in all: instr.",
    ];
    for header in headers {
        grid.column(header, header);
    }
    for cell in &row.cells {
        let Some(counts) = &cell.counts else { continue };
        let Costs { instructions, branches, branch_misses, d1_accesses, d1_misses, ll_misses } =
            counts.without_harness.unwrap_or(counts.total);
        let faults = run_median(&cell.runs, &|run| run.faults as f64 / run.ops as f64);
        let small = |value: f64| if value.abs() < 0.1 { format!("{value:.4}") } else { digits(value) };
        let dash = || "-".to_owned();
        let values = [
            cell.figures.map_or_else(dash, |figures| digits(figures.time_ns.median)),
            digits(instructions),
            digits(branches),
            small(branch_misses),
            if d1_accesses > 0.0 { digits(d1_accesses) } else { dash() },
            small(d1_misses),
            small(ll_misses),
            faults.map_or_else(dash, small),
            cell.syscalls_per_op.map_or_else(dash, small),
            digits(counts.total.instructions),
        ];
        let cells = values.into_iter().map(|value| (value, Mark::None)).collect();
        grid.row(&[format!("  {}", cell.allocator)], cells);
    }
    grid
}

fn syscalls_text(results: &Results) -> String {
    let mut out = String::new();
    for row in &results.rows {
        let mut lines = String::new();
        for cell in &row.cells {
            match (&cell.syscalls, &cell.syscalls_error) {
                (Some(calls), _) => {
                    let mut sorted: Vec<(&String, &u64)> = calls.iter().collect();
                    sorted.sort_by(|a, b| b.1.cmp(a.1));
                    let kinds = sorted.iter().map(|(name, count)| format!("{name} {}", text::count(**count)));
                    let total = text::count(calls.values().sum());
                    let head = format!("  {:<14} {total:>9}  ", cell.allocator);
                    let kinds: Vec<String> = kinds.take(8).collect();
                    let _ = writeln!(lines, "{head}{}", text::wrapped(&kinds, head.len(), WIDTH));
                }
                (None, Some(reason)) => {
                    let _ = writeln!(lines, "  {:<14} not counted: {reason}", cell.allocator);
                }
                (None, None) => {}
            }
        }
        if !lines.is_empty() {
            let _ = write!(out, "{}\n{lines}", row.name);
        }
    }
    match (&results.settings.syscall_method, out.is_empty()) {
        (Some(method), false) => format!("\nSystem calls, {method}\n{out}"),
        _ => out,
    }
}
