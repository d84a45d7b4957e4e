//! table.rs - the results in a terminal: time, memory, rates, and where HAKMEM is not the best.
//!
//! Owns: the words and the order. Columns and folding are grid.rs's work, operations and system calls costs.rs's.
//! Rule: the last thing to read is what is bad: failures, then every row in which HAKMEM is worse than the best.

use super::allocators::HAKMEM;
use super::costs;
use super::figures;
use super::grid::{Grid, Mark};
use super::results::{Cell, Figures, Ratio, Results, Row, Size, Spread, Summary, Worse};
use crate::text::{self, Colour, paint};
use std::fmt::Write;
use std::io::{self, IsTerminal};

/// Columns where nobody says how wide the terminal is, or where there is none.
const WIDTH: usize = 100;

pub const NOT_THE_BEST: &str = "Where HAKMEM is not the best";

/// Of more rows the rates are left to the page and the file: they say nothing that the times do not.
const RATE_ROWS_MAX: usize = 15;

pub fn width() -> usize {
    if !io::stdout().is_terminal() {
        return WIDTH;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if asked == 0 && size.ws_col >= 60 { usize::from(size.ws_col) } else { WIDTH }
}

pub fn text(results: &Results, width: usize, colours: bool) -> String {
    let mut out = head(results);
    let measured: Vec<&Row> = results.rows.iter().filter(|row| row.best_time.is_some()).collect();
    if !measured.is_empty() {
        let legend = "* the best of its row, = not worse by the 95% interval, ~ not steady";
        titled(
            &mut out,
            &format!("Time per operation ({legend})"),
            &times(results, &measured),
            width,
            colours,
        );
        titled(&mut out, "Peak resident memory, MiB", &peaks(results, &measured), width, colours);
        titled(
            &mut out,
            "Resident memory after the work, MiB",
            &residents(results, &measured),
            width,
            colours,
        );
        let rates = rates(results, &measured);
        if rates.row_count() <= RATE_ROWS_MAX {
            titled(&mut out, "Million operations a second, by the wall clock", &rates, width, colours);
        }
    }
    out.push_str(&costs::text(results));
    out.push_str(&not_measured(results));
    out.push_str(&failed(results, colours));
    out.push_str(&not_the_best(results, colours));
    out
}

fn titled(out: &mut String, title: &str, grid: &Grid, width: usize, colours: bool) {
    if grid.row_count() > 0 {
        let _ = write!(out, "\n{}\n{}", paint(title, Colour::Bold, colours), grid.text(width, colours));
    }
}

fn head(results: &Results) -> String {
    let (machine, settings) = (&results.machine, &results.settings);
    let size = if settings.size == Size::Quick { "quick" } else { "full" };
    let mut out = format!(
        "hakmem bench {} ({size}): {}, {}, {:.0} s{}\n",
        settings.asked.join(" "),
        text::counted(results.rows.len() as u64, "row", "rows"),
        text::counted(results.allocators.len() as u64, "allocator", "allocators"),
        results.wall_s,
        if results.is_interrupted { ", interrupted" } else { "" }
    );
    let about = [
        machine.processor.clone(),
        text::counted(u64::from(machine.processors), "processor", "processors"),
        text::bytes(machine.memory_bytes),
        machine.system.clone(),
        format!("kernel {}", machine.kernel),
        format!("huge pages {}", machine.huge_pages),
        format!("load {:.1} before", machine.load_before),
        format!("{:.1} after", machine.load_after),
    ];
    let _ = writeln!(out, "{}", text::wrapped(&about, 2, WIDTH));
    let versions =
        results.allocators.iter().map(|allocator| format!("{} {}", allocator.name, allocator.version));
    let _ = writeln!(out, "{}", text::wrapped(&versions.collect::<Vec<_>>(), 2, WIDTH));
    out
}

// --- the tables ------------------------------------------------------------------------------------------

fn label(row: &Row) -> String {
    format!("{}{}", row.name, if row.is_steady { "" } else { " ~" })
}

fn grid(results: &Results, has_ratio: bool) -> Grid {
    let mut grid = Grid::new(&["row", "unit"]);
    for allocator in &results.allocators {
        grid.column(&allocator.name, &allocator.name);
        if allocator.name == HAKMEM && has_ratio {
            grid.column("of best", &allocator.name);
        }
    }
    grid
}

/// A row of a grid: one value per allocator, and HAKMEM's ratio beside its own.
fn line(
    row: &Row,
    has_ratio: bool,
    value: &dyn Fn(&Figures) -> (String, Option<Ratio>),
) -> Vec<(String, Mark)> {
    let mut cells = Vec::new();
    for cell in &row.cells {
        let shown = cell.figures.as_ref().map(value);
        let ratio = shown.as_ref().and_then(|(_, ratio)| *ratio);
        cells.push(match shown {
            Some((text, None)) => (text, Mark::None),
            Some((text, Some(Ratio::ONE))) => (text, Mark::Best),
            Some((text, Some(ratio))) => (text, if ratio.is_worse() { Mark::None } else { Mark::Tie }),
            None => (failure_word(cell), Mark::Failed),
        });
        if cell.allocator == HAKMEM && has_ratio {
            cells.push((ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.median)), Mark::None));
        }
    }
    cells
}

/// "crashed" of "crashed: SIGSEGV".
fn failure_word(cell: &Cell) -> String {
    let error = cell.error.as_deref().unwrap_or("-");
    let word = error.split(':').next().unwrap_or_default();
    if word.len() <= 10 { word.to_owned() } else { "failed".to_owned() }
}

/// Three digits, or all of those before the point.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => text::count(value.round() as u64),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The unit in which a row's best has one to three digits before the point.
fn unit_of(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "us"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

fn best_of(row: &Row, value: &dyn Fn(&Figures) -> f64) -> f64 {
    row.cells.iter().filter_map(|cell| cell.figures.as_ref()).map(value).fold(f64::INFINITY, f64::min)
}

fn foot(grid: &mut Grid, results: &Results, name: &str, value: &dyn Fn(&Summary) -> String) {
    let mut cells = Vec::new();
    for summary in &results.summary {
        cells.push((value(summary), Mark::None));
        if summary.allocator == HAKMEM {
            cells.push((String::new(), Mark::None));
        }
    }
    grid.foot(&[name.to_owned(), String::new()], cells);
}

fn means(
    grid: &mut Grid,
    results: &Results,
    mean: &dyn Fn(&Summary) -> Option<f64>,
    mean_over_others: &dyn Fn(&Summary) -> Option<f64>,
    bests: &dyn Fn(&Summary) -> u32,
) {
    let shown = |mean: Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.3}"));
    foot(grid, results, "geometric mean / best", &|summary| shown(mean(summary)));
    if results.summary.iter().any(|summary| mean_over_others(summary).is_some()) {
        foot(grid, results, "the same / best other", &|summary| shown(mean_over_others(summary)));
    }
    foot(grid, results, "rows, best or equal", &|summary| bests(summary).to_string());
    if results.summary.iter().any(|summary| summary.rows != results.summary[0].rows) {
        foot(grid, results, "rows measured", &|summary| summary.rows.to_string());
    }
}

fn times(results: &Results, rows: &[&Row]) -> Grid {
    let mut grid = grid(results, true);
    for row in rows {
        let (scale, unit) = unit_of(best_of(row, &|figures| figures.time_ns.median));
        let value = |figures: &Figures| (digits(figures.time_ns.median / scale), Some(figures.time_ratio));
        grid.row(&[label(row), unit.to_owned()], line(row, true, &value));
    }
    means(
        &mut grid,
        results,
        &|summary| summary.time_over_best,
        &|summary| summary.time_over_others,
        &|summary| summary.time_best_rows,
    );
    grid
}

fn mib(kb: &Spread) -> String {
    digits(kb.median / 1024.0)
}

fn peaks(results: &Results, rows: &[&Row]) -> Grid {
    let mut grid = grid(results, true);
    for row in rows {
        let value = |figures: &Figures| (mib(&figures.peak_kb), Some(figures.peak_ratio));
        grid.row(&[row.name.clone(), String::new()], line(row, true, &value));
    }
    means(
        &mut grid,
        results,
        &|summary| summary.peak_over_best,
        &|summary| summary.peak_over_others,
        &|summary| summary.peak_best_rows,
    );
    grid
}

fn residents(results: &Results, rows: &[&Row]) -> Grid {
    let mut grid = grid(results, true);
    for row in rows.iter().filter(|row| row.resident_after) {
        let least = best_of(row, &|figures| figures.resident_kb.map_or(f64::INFINITY, |kb| kb.median));
        let value = |figures: &Figures| match &figures.resident_kb {
            Some(kb) => {
                let ratio = kb.median / least;
                (mib(kb), Some(Ratio { median: ratio, low: ratio, high: ratio }))
            }
            None => ("-".to_owned(), None),
        };
        grid.row(&[row.name.clone(), String::new()], line(row, true, &value));
    }
    grid
}

fn rates(results: &Results, rows: &[&Row]) -> Grid {
    let mut grid = grid(results, false);
    for row in rows.iter().filter(|row| row.rate) {
        let value = |figures: &Figures| (digits(figures.rate_per_s / 1e6), None);
        grid.row(&[row.name.clone(), String::new()], line(row, false, &value));
    }
    grid
}

// --- what is bad -------------------------------------------------------------------------------------------

fn not_measured(results: &Results) -> String {
    let reason = |row: &Row| Some(format!("  {}: {}\n", row.name, row.skipped.as_ref()?));
    let lines: String = results.rows.iter().filter_map(reason).collect();
    if lines.is_empty() { lines } else { format!("\nNot measured here\n{lines}") }
}

fn failed(results: &Results, colours: bool) -> String {
    let mut lines = String::new();
    for allocator in &results.allocators {
        for (row, reason) in figures::failures(results, &allocator.name) {
            let _ = writeln!(lines, "  {} in {row}: {reason}", allocator.name);
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!("\n{}\n{lines}", paint("Failed, and part of no figure", Colour::Red, colours))
}

fn not_the_best(results: &Results, colours: bool) -> String {
    let Some(own) = results.summary.iter().find(|summary| summary.allocator == HAKMEM && summary.rows > 0)
    else {
        return String::new();
    };
    let mut out = format!("\n{}\n", paint(NOT_THE_BEST, Colour::Bold, colours));
    worse(&mut out, "time", results, own.rows, &own.time_worse);
    worse(&mut out, "peak memory", results, own.rows, &own.peak_worse);
    more_after(&mut out, results);
    let unsteady = results.rows.iter().filter(|row| row.best_time.is_some() && !row.is_steady).count();
    if unsteady > 0 {
        let limits = (results.settings.steady_cpu * 100.0, results.settings.steady_wall * 100.0);
        let rows = text::counted(unsteady as u64, "row is", "rows are");
        let _ = writeln!(
            out,
            "  {rows} not steady: some ratio is not known to {} % (processor time) or {} % (wall time)",
            limits.0, limits.1
        );
    }
    out
}

/// Rows in which HAKMEM keeps more memory after the work than the one that keeps least, by more than a percent.
fn more_after(out: &mut String, results: &Results) {
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.resident_after).collect();
    let kept = |cell: &Cell| Some((cell.figures.as_ref()?.resident_kb?.median, cell.allocator.clone()));
    let mut found = Vec::new();
    let mut count = 0;
    for row in rows {
        let all: Vec<(f64, String)> = row.cells.iter().filter_map(kept).collect();
        let own = all.iter().find(|(_, name)| name == HAKMEM).map(|(kb, _)| *kb);
        let least = all.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(own), Some((least, best))) = (own, least) else { continue };
        count += 1;
        if own > least * 1.01 {
            found.push((own / least, row.name.as_str(), best));
        }
    }
    if found.is_empty() {
        return;
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let width = found.iter().map(|(_, row, _)| row.len()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "  memory after the work: in {} of {}",
        found.len(),
        text::counted(count, "row", "rows")
    );
    for (ratio, row, best) in found {
        let _ = writeln!(out, "    {row:<width$}  {ratio:.2} times {best}");
    }
}

fn worse(out: &mut String, what: &str, results: &Results, rows: u32, worse: &[Worse]) {
    if worse.is_empty() {
        let all = if rows == 1 { "its only row".to_owned() } else { format!("all {rows} rows") };
        let _ = writeln!(out, "  {what}: nowhere; in {all} it is the best, or not worse by the interval");
        return;
    }
    let width = worse.iter().map(|one| one.row.len()).max().unwrap_or(0);
    let _ = writeln!(out, "  {what}: in {} of {rows} rows", worse.len());
    for Worse { row, ratio, best } in worse {
        let rounds = results.rows.iter().find(|one| one.name == *row).map_or(0, |one| one.rounds);
        let interval = match rounds {
            1 => "one round".to_owned(),
            2 => format!("{:.2} and {:.2}, two rounds", ratio.low, ratio.high),
            _ => format!("{:.2} to {:.2}", ratio.low, ratio.high),
        };
        let _ = writeln!(out, "    {row:<width$}  {:.2} times {best} ({interval})", ratio.median);
    }
}
