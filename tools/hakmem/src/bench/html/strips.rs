//! strips.rs - the plot: a row per workload, an allocator per mark, from the row's best at the left to the worst.

use super::figures::{Details, details};
use super::marks::{FOCUS, Mark};
use super::scale::{Scale, Tick};
use crate::bench::results::{Cell, Figures, Ratio, Results, Row};
use crate::bench::words;
use serde::Serialize;

/// The groups, by profile, in the order in which a row that is in several of them is given to one.
const GROUPS: [(&str, &str); 8] = [
    ("real", "Real programs"),
    ("tiny", "Tiny blocks"),
    ("mid", "Blocks of all sizes"),
    ("large", "Large blocks"),
    ("threads", "Threads"),
    ("server", "Like servers"),
    ("memory", "Memory over time"),
    ("seeds", "The workloads that the project began with"),
];
const OTHERS: &str = "Others";

/// Marks of one strip keep apart from each other: percent of its width, and pixels from lane to lane.
const MARK_WIDTH: f64 = 3.4;
const FOCUS_WIDTH: f64 = 4.6;
const LANE_PIXELS: f64 = 10.0;
const EDGE_PIXELS: f64 = 9.0;
const LANE_COUNT_MAX: usize = 5;

/// Above it, an interval that reaches 1 is too wide to call it a tie.
const TIE_MAX: f64 = 1.05;

#[derive(Debug, Serialize)]
pub struct Plot {
    pub time_ticks: Vec<Tick>,
    pub time_border: Option<f64>,
    pub memory_ticks: Vec<Tick>,
    pub memory_border: Option<f64>,
    pub groups: Vec<Group>,
    /// Rows that were not measured, and why.
    pub skipped: Vec<(String, String)>,
    pub has_after: bool,
    pub row_count: usize,
}

#[derive(Debug, Serialize)]
pub struct Group {
    pub title: &'static str,
    pub rows: Vec<Line>,
}

/// One workload.
#[derive(Debug, Serialize)]
pub struct Line {
    pub index: usize,
    pub name: String,
    pub about: String,
    pub profiles: String,
    pub is_unsteady: bool,
    /// In words.
    pub failures: Vec<String>,
    pub time: Strip,
    pub memory: Vec<Strip>,
    /// To sort by, for the script; 0 where the focus has no figures.
    pub time_ratio: f64,
    pub peak_ratio: f64,
    pub is_worse: bool,
    pub details: Details,
}

#[derive(Debug, Serialize)]
pub struct Strip {
    /// Stands beside the strip where a cell has two.
    pub title: &'static str,
    pub height: f64,
    pub dots: Vec<Dot>,
    /// The focus's ratio, and what there is to say of it.
    pub number: String,
    pub beside: String,
    pub is_best: bool,
    /// All of it, for those who do not see it.
    pub spoken: String,
}

#[derive(Debug, Serialize)]
pub struct Dot {
    pub index: usize,
    pub shape: usize,
    pub is_focus: bool,
    /// In percent of the width, and pixels from the top.
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
    pub has_whisker: bool,
    pub title: String,
}

/// The memory after the work over the row's smallest; the interval is that of the median, not of the ratio.
pub fn after_ratios(row: &Row) -> Vec<(&str, Ratio)> {
    let spread = |cell: &'_ Cell| cell.figures.and_then(|figures| figures.resident_kb);
    let smallest =
        row.cells.iter().filter_map(spread).map(|after| after.median).fold(f64::INFINITY, f64::min);
    if !row.resident_after || !smallest.is_finite() || smallest <= 0.0 {
        return Vec::new();
    }
    let over = |kb: f64| kb / smallest;
    let ratio = |cell: &'_ Cell| {
        spread(cell).map(|after| Ratio {
            median: over(after.median),
            low: over(after.low),
            high: over(after.high),
        })
    };
    row.cells.iter().filter_map(|cell| Some((cell.allocator.as_str(), ratio(cell)?))).collect()
}

fn ratios(row: &Row, of: impl Fn(&Figures) -> Ratio) -> Vec<(&str, Ratio)> {
    row.cells.iter().filter_map(|cell| Some((cell.allocator.as_str(), of(cell.figures.as_ref()?)))).collect()
}

fn time_ratios(row: &Row) -> Vec<(&str, Ratio)> {
    ratios(row, |figures| figures.time_ratio)
}

fn peak_ratios(row: &Row) -> Vec<(&str, Ratio)> {
    ratios(row, |figures| figures.peak_ratio)
}

/// Ratios of a row by allocator.
type Ratios = fn(&Row) -> Vec<(&str, Ratio)>;

fn scale(results: &Results, of: &[Ratios]) -> Scale {
    let (mut all, mut always) = (Vec::new(), Vec::new());
    for (name, ratio) in results.rows.iter().flat_map(|row| of.iter().flat_map(move |of| of(row))) {
        all.push(ratio.median);
        if name == FOCUS {
            always.push(ratio.median);
        }
    }
    Scale::for_strips(&all, &always)
}

pub fn plot(results: &Results, marks: &[Mark]) -> Plot {
    let time_scale = scale(results, &[time_ratios]);
    let memory_scale = scale(results, &[peak_ratios, after_ratios]);
    let titles = GROUPS.iter().map(|(_, title)| *title).chain([OTHERS]);
    let mut groups: Vec<Group> = titles.map(|title| Group { title, rows: Vec::new() }).collect();
    let mut skipped = Vec::new();
    for (index, row) in results.rows.iter().enumerate() {
        if let Some(why) = &row.skipped {
            skipped.push((row.name.clone(), why.clone()));
            continue;
        }
        let place = GROUPS.iter().position(|(profile, _)| row.profiles.iter().any(|name| name == profile));
        groups[place.unwrap_or(GROUPS.len())].rows.push(line(
            results,
            index,
            row,
            marks,
            &time_scale,
            &memory_scale,
        ));
    }
    groups.retain(|group| !group.rows.is_empty());
    Plot {
        time_ticks: time_scale.ticks(),
        time_border: time_scale.border(),
        memory_ticks: memory_scale.ticks(),
        memory_border: memory_scale.border(),
        row_count: groups.iter().map(|group| group.rows.len()).sum(),
        has_after: results.rows.iter().any(|row| !after_ratios(row).is_empty()),
        groups,
        skipped,
    }
}

fn line(results: &Results, index: usize, row: &Row, marks: &[Mark], time: &Scale, memory: &Scale) -> Line {
    let (times, peaks, afters) = (time_ratios(row), peak_ratios(row), after_ratios(row));
    let mut strips = vec![strip("peak", row, &peaks, row.best_peak.as_deref(), marks, memory)];
    if !afters.is_empty() {
        let smallest = afters.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
        strips.push(strip("after", row, &afters, smallest.map(|(name, _)| *name), marks, memory));
    }
    let focus = row.cells.iter().find(|cell| cell.allocator == FOCUS);
    let figures = focus.and_then(|cell| cell.figures);
    let finite = |ratio: Option<f64>| ratio.filter(|ratio| ratio.is_finite()).unwrap_or(0.0);
    Line {
        index,
        name: row.name.clone(),
        about: row.about.clone(),
        profiles: row.profiles.join(" "),
        is_unsteady: !row.is_steady && row.cells.iter().any(|cell| cell.figures.is_some()),
        failures: failures(row),
        time: strip("time", row, &times, row.best_time.as_deref(), marks, time),
        memory: strips,
        time_ratio: finite(figures.map(|figures| figures.time_ratio.median)),
        peak_ratio: finite(figures.map(|figures| figures.peak_ratio.median)),
        is_worse: figures
            .is_none_or(|figures| figures.time_ratio.is_worse() || figures.peak_ratio.is_worse()),
        details: details(results, row),
    }
}

fn failures(row: &Row) -> Vec<String> {
    let failure = |cell: &Cell| {
        cell.error.as_ref().map(|error| format!("{} failed: {error}", words::allocator(&cell.allocator)))
    };
    row.cells.iter().filter_map(failure).collect()
}

fn strip(
    title: &'static str,
    row: &Row,
    ratios: &[(&str, Ratio)],
    best: Option<&str>,
    marks: &[Mark],
    scale: &Scale,
) -> Strip {
    let (number, beside, is_best) = verdict(row, ratios, best);
    let what = match title {
        "time" => "time",
        "peak" => "peak memory",
        _ => "memory after the work",
    };
    let mut sorted: Vec<_> = ratios.iter().filter(|(_, ratio)| ratio.median.is_finite()).collect();
    sorted.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let said: Vec<String> = sorted
        .iter()
        .map(|(name, ratio)| format!("{} {}", words::allocator(name), words::ratio(ratio.median)))
        .collect();
    let (dots, height) = dots(&sorted, marks, scale);
    let spoken = match said.len() {
        0 => format!("{}, {what}: no figures", row.name),
        _ => format!("{}, {what} over the best: {}", row.name, said.join(", ")),
    };
    Strip { title, height, dots, number, beside, is_best, spoken }
}

fn verdict(row: &Row, ratios: &[(&str, Ratio)], best: Option<&str>) -> (String, String, bool) {
    let best_name = best.map(words::allocator).unwrap_or(words::NONE);
    let Some((_, ratio)) = ratios.iter().find(|(name, _)| *name == FOCUS) else {
        let is_failed = row.cells.iter().any(|cell| cell.allocator == FOCUS && cell.error.is_some());
        let number = if is_failed { "failed" } else { words::NONE };
        let beside = if best.is_some() { format!("best: {best_name}") } else { "no figures".to_owned() };
        return (number.to_owned(), beside, false);
    };
    let number = words::ratio(ratio.median);
    if best == Some(FOCUS) {
        let others = ratios.iter().filter(|(name, ratio)| *name != FOCUS && ratio.median.is_finite());
        let beside = match others.min_by(|a, b| a.1.median.total_cmp(&b.1.median)) {
            Some((name, next)) => format!("then {} {}", words::allocator(name), words::ratio(next.median)),
            None => "alone".to_owned(),
        };
        return ("best".to_owned(), beside, true);
    }
    if ratio.is_worse() {
        return (number, format!("× {best_name}"), false);
    }
    if ratio.median > TIE_MAX {
        return (number, format!("× {best_name}, not sure"), false);
    }
    (number, format!("ties with {best_name}"), true)
}

/// Marks from left to right, each in the first lane in which it touches no other; the focus in the middle, on top.
fn dots(sorted: &[&(&str, Ratio)], marks: &[Mark], scale: &Scale) -> (Vec<Dot>, f64) {
    let mark_of = |name: &str| marks.iter().find(|mark| words::allocator(name) == mark.name);
    let mut taken: Vec<(usize, f64, f64)> = Vec::new(); // lane, x, width
    if let Some((_, ratio)) = sorted.iter().find(|(name, _)| *name == FOCUS) {
        taken.push((0, scale.x(ratio.median), FOCUS_WIDTH));
    }
    let mut placed = Vec::new();
    for (name, ratio) in sorted {
        let Some(mark) = mark_of(name) else { continue };
        let x = scale.x(ratio.median);
        let lane = if mark.is_focus { 0 } else { lane_for(x, &mut taken) };
        placed.push((lane, dot(mark, ratio, x, scale)));
    }
    // Lanes are taken from the middle outwards: 0, then one above, one below, ...
    let used = placed.iter().map(|(lane, _)| *lane).max().unwrap_or(0);
    let above = used.div_ceil(2) as f64;
    let below = (used / 2) as f64;
    let middle = EDGE_PIXELS + above * LANE_PIXELS;
    let mut dots: Vec<Dot> = placed
        .into_iter()
        .map(|(lane, dot)| {
            let away = lane.div_ceil(2) as f64 * LANE_PIXELS;
            Dot { y: if lane % 2 == 1 { middle - away } else { middle + away }, ..dot }
        })
        .collect();
    dots.sort_by_key(|dot| dot.is_focus);
    (dots, middle + below * LANE_PIXELS + EDGE_PIXELS)
}

fn lane_for(x: f64, taken: &mut Vec<(usize, f64, f64)>) -> usize {
    let room = |lane: usize| {
        let gaps = taken.iter().filter(|(at, ..)| *at == lane);
        gaps.map(|(_, at, width)| (x - at).abs() - (width + MARK_WIDTH) / 2.0).fold(f64::INFINITY, f64::min)
    };
    let widest = || (1..LANE_COUNT_MAX).max_by(|a, b| room(*a).total_cmp(&room(*b))).unwrap_or(0);
    let lane = (0..LANE_COUNT_MAX).find(|lane| room(*lane) >= 0.0).unwrap_or_else(widest);
    taken.push((lane, x, MARK_WIDTH));
    lane
}

fn dot(mark: &Mark, ratio: &Ratio, x: f64, scale: &Scale) -> Dot {
    let is_beyond = scale.is_beyond(ratio.median);
    let (low, high) = (scale.x(ratio.low.max(1e-9)), scale.x(ratio.high.min(scale.max)));
    let has_whisker = !is_beyond && ratio.low.is_finite() && ratio.high.is_finite() && high - low > 1.0;
    Dot {
        index: mark.index,
        shape: mark.shape,
        is_focus: mark.is_focus,
        x,
        y: 0.0,
        low,
        high,
        has_whisker,
        title: format!("{} {} ({})", mark.name, words::ratio(ratio.median), words::interval(ratio)),
    }
}
