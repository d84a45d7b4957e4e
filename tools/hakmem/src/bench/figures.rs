//! figures.rs - what the raw runs of a row come to: medians, ratios to the best, and the summary of all rows.
//!
//! Owns: the rules by which a best is found and a row is called steady. Pure: no clock, no file.
//! Rule: a cell with an error has no figures and is part of nothing.

use super::peers::HAKMEM;
use super::quiet;
use super::results::{Allocator, Cell, Figures, Ratio, Results, Row, Run, Settings, Summary, Time, Worse};
use super::statistics::{self, ROUNDS_FOR_INTERVAL};

/// So far behind, nobody asks for percents: more than twice the best's time in three rounds, or ten times in one.
pub fn is_far_behind(figures: &Figures) -> bool {
    let low = figures.time_ratio.low;
    low > 10.0 || (figures.runs >= 3 && low > 2.0)
}

/// Time per operation by the row's clock.
fn time_ns(run: &Run, time: Time) -> f64 {
    let ns = match time {
        Time::Cpu => run.cpu_ns.max(1),
        Time::Wall => run.wall_ns,
    };
    ns as f64 / run.ops as f64
}

fn is_alive(cell: &Cell) -> bool {
    cell.error.is_none() && !cell.runs.is_empty()
}

pub fn run_median(runs: &[Run], value: &dyn Fn(&Run) -> f64) -> Option<f64> {
    let values: Vec<f64> = runs.iter().map(value).collect();
    (!values.is_empty()).then(|| statistics::median(&values))
}

/// Neither begun nor ended while others used the memory (quiet.rs), as far as anybody looked.
fn is_quiet(run: &Run) -> bool {
    run.quiet_before.into_iter().chain(run.quiet_after).all(|found| found <= quiet::LIMIT)
}

/// Enough are quiet to leave the others out: few quiet ones know less than many of both.
fn is_enough(quiet: usize, all: usize) -> bool {
    quiet >= ROUNDS_FOR_INTERVAL && quiet * 3 >= all
}

/// The runs of a cell whose times count.
pub fn timed(cell: &Cell) -> Vec<&Run> {
    let quiet: Vec<&Run> = cell.runs.iter().filter(|run| is_quiet(run)).collect();
    if is_enough(quiet.len(), cell.runs.len()) { quiet } else { cell.runs.iter().collect() }
}

/// The cell with the lowest median of `value` in the runs that `which` takes; the first of equals.
fn best_by(cells: &[Cell], which: &dyn Fn(&Cell) -> Vec<&Run>, value: &dyn Fn(&Run) -> f64) -> Option<usize> {
    let median = |cell: &Cell| statistics::median(&which(cell).into_iter().map(value).collect::<Vec<_>>());
    let alive = cells.iter().enumerate().filter(|(_, cell)| is_alive(cell));
    let medians = alive.map(|(at, cell)| (at, median(cell)));
    medians.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// The runs of two cells in the rounds that both have.
fn pairs<'a>(ours: &'a Cell, best: &'a Cell) -> Vec<(&'a Run, &'a Run)> {
    let partner = |own: &'a Run| Some((own, best.runs.iter().find(|other| other.round == own.round)?));
    ours.runs.iter().filter_map(partner).collect()
}

fn ratio_of(pairs: &[(&Run, &Run)], value: &dyn Fn(&Run) -> f64) -> Ratio {
    let (ours, best): (Vec<f64>, Vec<f64>) =
        pairs.iter().map(|(own, best)| (value(own), value(best))).unzip();
    statistics::ratio(&ours, &best)
}

/// Of pairs of which both runs were quiet, if there are enough.
fn time_ratio(ours: &Cell, best: &Cell, time: &dyn Fn(&Run) -> f64) -> Ratio {
    let all = pairs(ours, best);
    let quiet: Vec<_> = all.iter().copied().filter(|(own, best)| is_quiet(own) && is_quiet(best)).collect();
    ratio_of(if is_enough(quiet.len(), all.len()) { &quiet } else { &all }, time)
}

/// Of two cells, whatever is the row's best.
pub fn time_ratio_between(row: &Row, cell: &Cell, base: &Cell) -> Ratio {
    time_ratio(cell, base, &|run| time_ns(run, row.time))
}

pub fn peak_ratio_between(cell: &Cell, base: &Cell) -> Ratio {
    ratio_of(&pairs(cell, base), &|run| run.peak_kb.saturating_sub(run.tables_kb).max(1) as f64)
}

/// Computes everything that is computed of a row, from its runs and errors.
pub fn row_complete(row: &mut Row, settings: &Settings) {
    let time = |run: &Run| time_ns(run, row.time);
    let peak = |run: &Run| run.peak_kb.saturating_sub(run.tables_kb).max(1) as f64;
    let limit = match row.time {
        Time::Cpu => settings.steady_cpu,
        Time::Wall => settings.steady_wall,
    };
    // The lowest median first; but who is faster than that one, round by round, is the best.
    let faster_than = |best: usize| {
        let alive = row.cells.iter().enumerate().filter(|(at, cell)| *at != best && is_alive(cell));
        let ratios = alive.map(|(at, cell)| (at, time_ratio(cell, &row.cells[best], &time).median));
        ratios.filter(|(_, ratio)| *ratio < 1.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
    };
    let fastest = best_by(&row.cells, &timed, &time).map(|first| faster_than(first).unwrap_or(first));
    let (Some(fastest), Some(smallest)) =
        (fastest, best_by(&row.cells, &|cell| cell.runs.iter().collect(), &peak))
    else {
        row.is_steady = false;
        row.cells.iter_mut().for_each(|cell| cell.figures = None);
        return;
    };
    let figures: Vec<Option<Figures>> = row
        .cells
        .iter()
        .enumerate()
        .map(|(at, cell)| {
            if !is_alive(cell) {
                return None;
            }
            let values = |value: &dyn Fn(&Run) -> f64| cell.runs.iter().map(value).collect::<Vec<_>>();
            let timed = timed(cell);
            let timed = |value: &dyn Fn(&Run) -> f64| timed.iter().map(|run| value(run)).collect::<Vec<_>>();
            let resident: Option<Vec<f64>> =
                cell.runs.iter().map(|run| run.resident_kb.map(|kb| kb as f64)).collect();
            let ratio_to = |best: usize, ratio: &dyn Fn(&Cell) -> Ratio| match at == best {
                true => Ratio::ONE,
                false => ratio(&row.cells[best]),
            };
            let time_ratio = ratio_to(fastest, &|best| time_ratio(cell, best, &time));
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            Some(Figures {
                time_ns: statistics::spread(&timed(&time)),
                time_ratio,
                rate_per_s: statistics::median(&timed(&|run| run.ops as f64 * 1e9 / run.wall_ns as f64)),
                peak_kb: statistics::spread(&values(&peak)),
                peak_ratio: ratio_to(smallest, &|best| ratio_of(&pairs(cell, best), &peak)),
                resident_kb: resident.map(|values| statistics::spread(&values)),
                faults: statistics::spread(&values(&|run| run.faults as f64)),
                cpu_over_wall: statistics::median(&timed(&|run| run.cpu_ns as f64 / run.wall_ns as f64)),
                runs: count(cell.runs.len()),
                disturbed: count(cell.runs.iter().filter(|run| !is_quiet(run)).count()),
                is_steady: cell.runs.len() >= ROUNDS_FOR_INTERVAL && time_ratio.half_width() <= limit,
            })
        })
        .collect();
    row.best_time = Some(row.cells[fastest].allocator.clone());
    row.best_peak = Some(row.cells[smallest].allocator.clone());
    row.is_steady = figures.iter().flatten().all(|figures| figures.is_steady || is_far_behind(figures));
    row.cells.iter_mut().zip(figures).for_each(|(cell, figures)| cell.figures = figures);
}

/// One summary per allocator, over the rows that have figures.
pub fn summarize(rows: &[Row], allocators: &[Allocator]) -> Vec<Summary> {
    let is_ours = |name: &str| name == HAKMEM || name.starts_with("hakmem-");
    let summary = |name: &str| {
        let is_other = |other: &str| other != name && !(is_ours(name) && is_ours(other));
        summary_of(rows, name, &is_other)
    };
    allocators.iter().map(|allocator| summary(&allocator.name)).collect()
}

/// Of a row: the greatest of the ratios to one of the others, so the ratio to the best of them.
fn over_others(row: &Row, is_other: &dyn Fn(&str) -> bool, ratio: &dyn Fn(&Cell) -> Ratio) -> Option<f64> {
    let others = row.cells.iter().filter(|cell| is_other(&cell.allocator) && is_alive(cell));
    others.map(|other| ratio(other).median).max_by(f64::total_cmp)
}

fn summary_of(rows: &[Row], name: &str, is_other: &dyn Fn(&str) -> bool) -> Summary {
    let cells: Vec<(&Row, &Cell)> = rows
        .iter()
        .filter_map(|row| Some((row, row.cells.iter().find(|cell| cell.allocator == name)?)))
        .collect();
    let measured: Vec<(&Row, &Figures)> =
        cells.iter().filter_map(|(row, cell)| Some((*row, cell.figures.as_ref()?))).collect();
    let worse = |ratio: &dyn Fn(&Figures) -> Ratio, best: &dyn Fn(&Row) -> Option<String>| {
        let mut worse: Vec<Worse> = measured
            .iter()
            .filter(|(_, figures)| ratio(figures).is_worse())
            .map(|(row, figures)| Worse {
                row: row.name.clone(),
                ratio: ratio(figures),
                best: best(row).unwrap_or_default(),
            })
            .collect();
        worse.sort_by(|a, b| b.ratio.median.total_cmp(&a.ratio.median));
        worse
    };
    let mean = |ratio: &dyn Fn(&Figures) -> Ratio| {
        statistics::geometric_mean(
            &measured.iter().map(|(_, figures)| ratio(figures).median).collect::<Vec<_>>(),
        )
    };
    let mean_over_others = |ratio: &dyn Fn(&Row, &Cell, &Cell) -> Ratio| {
        let alive = cells.iter().filter(|(_, cell)| cell.figures.is_some());
        let ratios = alive.filter_map(|(row, cell)| over_others(row, is_other, &|other| ratio(row, cell, other)));
        statistics::geometric_mean(&ratios.collect::<Vec<_>>())
    };
    let time_worse = worse(&|figures| figures.time_ratio, &|row| row.best_time.clone());
    let peak_worse = worse(&|figures| figures.peak_ratio, &|row| row.best_peak.clone());
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Summary {
        allocator: name.to_owned(),
        rows: count(measured.len()),
        failed: cells
            .iter()
            .filter(|(_, cell)| cell.error.is_some())
            .map(|(row, _)| row.name.clone())
            .collect(),
        time_over_best: mean(&|figures| figures.time_ratio),
        peak_over_best: mean(&|figures| figures.peak_ratio),
        time_over_others: mean_over_others(&time_ratio_between),
        peak_over_others: mean_over_others(&|_, cell, other| peak_ratio_between(cell, other)),
        time_best_rows: count(measured.len() - time_worse.len()),
        peak_best_rows: count(measured.len() - peak_worse.len()),
        time_worse,
        peak_worse,
    }
}

/// Rows of `name` that failed, with the reason.
pub fn failures<'a>(results: &'a Results, name: &str) -> Vec<(&'a str, &'a str)> {
    let cell = |row: &'a Row| row.cells.iter().find(|cell| cell.allocator == name);
    let reason = |row: &'a Row| Some((row.name.as_str(), cell(row)?.error.as_deref()?));
    results.rows.iter().filter_map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Size;

    fn settings() -> Settings {
        Settings {
            size: Size::Quick,
            command: None,
            asked: Vec::new(),
            rounds_max: 30,
            budget_s: 1.0,
            steady_cpu: 0.015,
            steady_wall: 0.03,
            interval: String::new(),
            count_method: None,
            syscall_method: None,
        }
    }

    /// A cell of runs of (round, nanoseconds per operation).
    fn cell(name: &str, runs: &[(u32, u64)]) -> Cell {
        let run = |(round, ns): &(u32, u64)| Run {
            round: *round,
            ops: 1,
            wall_ns: *ns,
            cpu_ns: *ns,
            peak_kb: 200,
            tables_kb: 100,
            ..Run::default()
        };
        Cell {
            allocator: name.to_owned(),
            error: None,
            runs: runs.iter().map(run).collect(),
            figures: None,
            counts: None,
            counts_error: None,
            syscalls: None,
            syscalls_per_op: None,
            syscalls_error: None,
        }
    }

    fn completed(cells: Vec<Cell>) -> Row {
        let mut row = Row {
            name: "a".to_owned(),
            about: String::new(),
            program: "a".to_owned(),
            is_real: false,
            file: None,
            program_version: None,
            arguments: Vec::new(),
            time: Time::Cpu,
            rate: false,
            resident_after: false,
            profiles: Vec::new(),
            shows: Vec::new(),
            sleeps_s: 0.0,
            skipped: None,
            rounds: 3,
            is_steady: false,
            best_time: None,
            best_peak: None,
            cells,
        };
        row_complete(&mut row, &settings());
        row
    }

    fn figures_of(row: &Row, at: usize) -> Figures {
        row.cells[at].figures.unwrap()
    }

    /// The machine became slower by the round; one allocator has no run of the second.
    #[test]
    fn runs_of_the_same_round_are_paired() {
        let best = cell("best", &[(1, 100), (2, 400), (3, 800)]);
        let other = cell("other", &[(1, 150), (3, 1200)]);
        let row = completed(vec![best, other]);
        assert_eq!(row.best_time.as_deref(), Some("best"));
        let ratio = figures_of(&row, 1).time_ratio;
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.5, 1.5, 1.5));
        assert_eq!(figures_of(&row, 0).time_ratio, Ratio::ONE);
        assert_eq!(figures_of(&row, 0).peak_kb.median, 100.0, "without the workload's own tables");
    }

    /// Who used the memory beside us is left out, but only where enough is left.
    #[test]
    fn disturbed_runs_are_set_aside() {
        let rounds: Vec<(u32, u64)> =
            (1..=9).map(|round| (round, if round > 6 { 500 } else { 100 })).collect();
        let mut disturbed = cell("a", &rounds);
        disturbed.runs.iter_mut().for_each(|run| {
            run.quiet_before = Some(1.0);
            run.quiet_after = Some(if run.round > 6 { 4.0 } else { 1.1 });
        });
        let best: Vec<(u32, u64)> = (1..=9).map(|round| (round, 90)).collect();
        let row = completed(vec![disturbed.clone(), cell("best", &best)]);
        let figures = figures_of(&row, 0);
        assert_eq!((figures.time_ns.max, figures.runs, figures.disturbed), (100.0, 9, 3));
        assert!((figures.time_ratio.high - 10.0 / 9.0).abs() < 1e-9, "{figures:?}");
        disturbed.runs.remove(0);
        let row = completed(vec![disturbed, cell("best", &best)]);
        assert_eq!(figures_of(&row, 0).time_ns.max, 500.0);
    }

    #[test]
    fn six_equal_rounds_are_steady_and_five_are_not() {
        let rounds = |count: u32, ns: u64| (1..=count).map(|round| (round, ns)).collect::<Vec<_>>();
        let row = |count| completed(vec![cell("a", &rounds(count, 10)), cell("b", &rounds(count, 11))]);
        assert!(row(6).is_steady && !row(5).is_steady);
        // Who is far behind is not asked.
        let slow = cell("slow", &[(1, 30), (2, 21), (3, 90)]);
        assert!(completed(vec![cell("a", &rounds(6, 10)), slow]).is_steady);
        let less_slow = cell("slow", &[(1, 30), (2, 19), (3, 90)]);
        assert!(!completed(vec![cell("a", &rounds(6, 10)), less_slow]).is_steady);
        let very_slow = cell("slow", &[(1, 101)]);
        assert!(completed(vec![cell("a", &rounds(6, 10)), very_slow]).is_steady);
    }

    #[test]
    fn a_failed_cell_is_no_best() {
        let mut failed = cell("failed", &[(1, 1)]);
        failed.error = Some("crashed: SIGSEGV".to_owned());
        let row = completed(vec![failed, cell("a", &[(1, 10)])]);
        assert_eq!((row.best_time.as_deref(), row.best_peak.as_deref()), (Some("a"), Some("a")));
        assert_eq!(row.cells[0].figures, None);
    }
}
