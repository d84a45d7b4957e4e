//! isolate.rs - --isolate: each feature of HAKMEM switched off alone, and what it costs and brings.
//!
//! Owns:   the switches (docs/learning.md) and the table. Everything else is the stand's: HAKMEM with a feature off is an
//!         allocator like any other, measured in the same rounds.
//! Reads:  a ratio is what the run without the feature took, of what the run with everything took. Above 1 the feature
//!         pays, below 1 it costs.
//! Rule:   all of them learn (HAKMEM_EVO_POLICY=auto) but where that is what is off, or nothing would be isolated.

use super::figures;
use super::grid::{Grid, Mark};
use super::peers::{HAKMEM, Known};
use super::results::{Cell, Results};
use super::statistics::{self, ROUNDS_FOR_INTERVAL};
use super::words;
use crate::text::{Colour, Failure, paint};
use std::fmt::Write;

/// Entry, variable, value, what is off then.
const SWITCHES: [(&str, &str, &str, &str); 5] = [
    ("no-learning", "HAKMEM_EVO_POLICY", "off", "learning"),
    ("no-bigcache", "HAKMEM_DISABLE_BIGCACHE", "1", "large blocks kept per call site"),
    ("no-elo", "HAKMEM_DISABLE_ELO", "1", "strategies that duel"),
    ("no-lifetimes", "HAKMEM_DISABLE_LIFETIMES", "1", "slabs by lifetime"),
    ("minimal", "HAKMEM_MINIMAL", "1", "all of it"),
];
const LEARNING: (&str, &str) = ("HAKMEM_EVO_POLICY", "auto");

/// HAKMEM with everything, and without each.
pub fn entries(all: &[Known]) -> Result<Vec<Known>, Failure> {
    let own = all.iter().find(|known| known.name == HAKMEM);
    let own = match own {
        Some(Known { missing: Some(how), .. }) => return Err(Failure::start(how.clone())),
        Some(own) => own,
        None => return Err(Failure::start("there is no library")),
    };
    let with = |name: &str, more: Option<(&str, &str)>| {
        let mut entry = Known { name: name.to_owned(), ..own.clone() };
        for (variable, value) in [Some(LEARNING), more].into_iter().flatten() {
            entry.environment.insert(variable.to_owned(), value.to_owned());
        }
        entry
    };
    let off = SWITCHES.iter().map(|(name, variable, value, _)| with(name, Some((variable, value))));
    Ok([with(HAKMEM, None)].into_iter().chain(off).collect())
}

/// Nothing where the run was none of this kind.
pub fn text(results: &Results, width: usize, colours: bool) -> String {
    let is_isolated =
        SWITCHES.iter().all(|(name, ..)| results.allocators.iter().any(|one| one.name == *name));
    if !is_isolated {
        return String::new();
    }
    let mut grid = Grid::new(&["row", "without"]);
    for header in ["time", "95% interval", "peak", "after", "faults"] {
        grid.column(header, header);
    }
    let mut sums: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); SWITCHES.len()];
    for row in &results.rows {
        let of = |name: &str| row.cells.iter().find(|cell| cell.allocator == name && cell.figures.is_some());
        let Some(base) = of(HAKMEM) else { continue };
        for ((name, ..), sum) in SWITCHES.iter().zip(&mut sums) {
            let Some(cell) = of(name) else { continue };
            let time = figures::time_ratio_between(row, cell, base);
            let peak = figures::peak_ratio_between(cell, base);
            sum.0.push(time.median);
            sum.1.push(peak.median);
            let is_enough = cell.runs.len().min(base.runs.len()) >= ROUNDS_FOR_INTERVAL; // below there is no interval of 95%
            let is_known = is_enough && (time.low > 1.0 || time.high < 1.0);
            grid.row(
                &[row.name.clone(), name.trim_start_matches("no-").to_owned()],
                vec![
                    (format!("{:.3}", time.median), if is_known { Mark::Best } else { Mark::Tie }),
                    (format!("{:.3} to {:.3}", time.low, time.high), Mark::None),
                    (format!("{:.2}", peak.median), Mark::None),
                    (others(cell, base, &after), Mark::None),
                    (others(cell, base, &faults), Mark::None),
                ],
            );
        }
    }
    let title =
        "What each feature costs and brings: without it, of with everything (* by more than chance, = not)";
    let mut out = format!("\n{}\n{}", paint(title, Colour::Bold, colours), grid.text(width, colours));
    for ((name, _, _, what), (times, peaks)) in SWITCHES.iter().zip(&sums) {
        if let (Some(time), Some(peak)) =
            (statistics::geometric_mean(times), statistics::geometric_mean(peaks))
        {
            let _ = writeln!(
                out,
                "  without {what} ({}): {} time, {} peak memory",
                name.trim_start_matches("no-"),
                words::change(time),
                words::change(peak)
            );
        }
    }
    out
}

fn after(cell: &Cell) -> Option<f64> {
    Some(cell.figures.as_ref()?.resident_kb?.median)
}

fn faults(cell: &Cell) -> Option<f64> {
    Some(cell.figures.as_ref()?.faults.median)
}

fn others(cell: &Cell, base: &Cell, value: &dyn Fn(&Cell) -> Option<f64>) -> String {
    match (value(cell), value(base)) {
        (Some(own), Some(all)) if all > 0.0 => format!("{:.2}", own / all),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::html::sample::{made_up, rename, slow_down};

    #[test]
    fn a_feature_that_pays_is_seen_and_one_that_does_nothing_is_not() {
        let mut results = made_up(4, 6, 12, 3);
        // The same speed for all, but what is off.
        let base = results.rows.clone();
        for (row, base) in results.rows.iter_mut().zip(&base) {
            let runs = base.cells[0].runs.clone();
            row.cells.iter_mut().for_each(|cell| (cell.error, cell.runs) = (None, runs.clone()));
        }
        let others: Vec<String> = results.allocators[1..].iter().map(|one| one.name.clone()).collect();
        assert!(text(&results, 100, false).is_empty(), "no run of this kind");
        others.iter().zip(SWITCHES).for_each(|(from, (to, ..))| rename(&mut results, from, to));
        slow_down(&mut results, "no-bigcache", 1.25, &[]);
        let text = text(&results, 100, false);
        assert!(
            text.contains("without large blocks kept per call site (bigcache): +25.0% time, +0.0% peak"),
            "{text}"
        );
        assert!(text.contains("without slabs by lifetime (lifetimes): +0.0% time"), "{text}");
        let line = text.lines().find(|line| line.contains("bigcache")).unwrap();
        assert!(line.contains("1.250*") && line.contains("1.250 to 1.250"), "{line}");
    }
}
