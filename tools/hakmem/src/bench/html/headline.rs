//! headline.rs - what the page says first, in sentences: how HAKMEM stands, and where it is not the best.

use super::marks::FOCUS;
use crate::bench::results::{Ratio, Results, Summary, Worse};
use crate::bench::words;
use crate::text::counted;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Headline {
    pub title: String,
    /// When and where.
    pub under: String,
    pub cards: Vec<Card>,
    pub sentences: Vec<String>,
}

/// A number large enough to be seen first.
#[derive(Debug, Serialize)]
pub struct Card {
    pub title: &'static str,
    pub number: String,
    pub words: String,
}

/// Rows in which the focus is not the best, in one respect.
#[derive(Debug, Serialize)]
pub struct WorseList {
    pub title: String,
    pub what: &'static str,
    pub rows: Vec<WorseRow>,
}

#[derive(Debug, Serialize)]
pub struct WorseRow {
    /// Of `Results::rows`, for the link.
    pub index: Option<usize>,
    pub row: String,
    pub ratio: String,
    pub interval: String,
    pub best: String,
}

/// One line of the table beside the map.
#[derive(Debug, Serialize)]
pub struct Rank {
    pub index: usize,
    pub time: String,
    pub peak: String,
    pub is_time_best: bool,
    pub is_peak_best: bool,
    pub time_best_rows: u32,
    pub peak_best_rows: u32,
    pub rows: u32,
    pub failed: String,
}

#[derive(Clone, Copy)]
enum By {
    Time,
    Peak,
}

impl By {
    fn of(self, summary: &Summary) -> Option<f64> {
        match self {
            By::Time => summary.time_over_best,
            By::Peak => summary.peak_over_best,
        }
        .filter(|mean| mean.is_finite())
    }
}

/// Those with a mean, best first.
fn ranking(results: &Results, by: By) -> Vec<(&Summary, f64)> {
    let means = results.summary.iter().filter_map(|summary| Some((summary, by.of(summary)?)));
    let mut ranking: Vec<_> = means.collect();
    ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
    ranking
}

fn focus(results: &Results) -> Option<&Summary> {
    results.summary.iter().find(|summary| summary.allocator == FOCUS)
}

fn measured(results: &Results) -> usize {
    results.rows.iter().filter(|row| row.cells.iter().any(|cell| cell.figures.is_some())).count()
}

fn ordinal(place: usize) -> String {
    let end = match (place % 10, place % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{place}{end}")
}

pub fn headline(results: &Results) -> Headline {
    let workloads = counted(measured(results) as u64, "workload", "workloads");
    let others = results.allocators.iter().filter(|allocator| allocator.name != FOCUS).count() as u64;
    let has_focus = results.allocators.iter().any(|allocator| allocator.name == FOCUS);
    let title = match (has_focus, others) {
        (true, 0) => format!("HAKMEM alone, {workloads}"),
        (true, _) => {
            format!("HAKMEM beside {}, {workloads}", counted(others, "other allocator", "other allocators"))
        }
        (false, _) => format!("{}, {workloads}", counted(others, "allocator", "allocators")),
    };
    let machine = &results.machine;
    let under = format!(
        "{}, on {} with {}, {}",
        results.started.replace('T', " ").replace('Z', " UTC"),
        machine.processor,
        counted(u64::from(machine.processors), "processor", "processors"),
        machine.system
    );
    Headline { title, under, cards: cards(results), sentences: sentences(results) }
}

fn cards(results: &Results) -> Vec<Card> {
    let Some(focus) = focus(results) else { return Vec::new() };
    let card = |by, title, best: &'static str| {
        let ranking = ranking(results, by);
        let mean = by.of(focus).filter(|_| ranking.len() > 1)?;
        Some(Card {
            title, number: words::ratio(mean), words: format!("× the {best}; {}", place(&ranking)?)
        })
    };
    let cards = [
        card(By::Time, "Time", "fastest of each row"),
        card(By::Peak, "Peak memory", "smallest of each row"),
    ];
    let mut cards: Vec<Card> = cards.into_iter().flatten().collect();
    if !cards.is_empty() {
        let of = counted(u64::from(focus.rows), "row", "rows");
        for (title, worse) in
            [("Not the fastest", &focus.time_worse), ("Not the smallest", &focus.peak_worse)]
        {
            let words = format!("of {of}, by more than the interval");
            cards.push(Card { title, number: worse.len().to_string(), words });
        }
    }
    cards
}

/// "2nd of 10, behind mimalloc3 (1.09)".
fn place(ranking: &[(&Summary, f64)]) -> Option<String> {
    let at = ranking.iter().position(|(summary, _)| summary.allocator == FOCUS)?;
    let of = format!("{} of {}", ordinal(at + 1), ranking.len());
    let named =
        |(summary, mean): &(&Summary, f64)| format!("{} ({})", summary.allocator, words::ratio(*mean));
    match (at, ranking.get(1)) {
        (0, Some(next)) => Some(format!("{of}, before {}", named(next))),
        (0, None) => None,
        _ => {
            let before: Vec<String> = ranking[..at.min(3)].iter().map(named).collect();
            let more = if at > 3 { format!(" and {} more", at - 3) } else { String::new() };
            Some(if more.is_empty() {
                format!("{of}, behind {}", words::list(&before))
            } else {
                format!("{of}, behind {}{more}", before.join(", "))
            })
        }
    }
}

fn sentences(results: &Results) -> Vec<String> {
    let rows = measured(results);
    if rows == 0 {
        return vec!["Nothing was measured: the reasons stand below.".to_owned()];
    }
    let (time, peak) = (ranking(results, By::Time), ranking(results, By::Peak));
    let Some(focus) = focus(results).filter(|focus| focus.rows > 0) else {
        return without_focus(results, &time, &peak);
    };
    if time.len() < 2 {
        let one =
            "Only HAKMEM was measured, so there is nothing to compare it with: its figures stand below.";
        let mut sentences = vec![one.to_owned()];
        sentences.extend(failures(results, focus));
        return sentences;
    }
    let (Some(time_mean), Some(peak_mean)) = (By::Time.of(focus), By::Peak.of(focus)) else {
        return failures(results, focus);
    };
    let mut sentences = vec![format!(
        "Over {}, HAKMEM takes {} times as long as the fastest allocator of each row and needs {} times the peak memory \
         of the smallest: geometric means, 1.00 would be the best everywhere.",
        counted(u64::from(focus.rows), "row", "rows"),
        words::ratio(time_mean),
        words::ratio(peak_mean)
    )];
    sentences.push(both_better(&time, &peak, time_mean, peak_mean));
    sentences.push(not_best(focus));
    sentences.extend(failures(results, focus));
    sentences
}

fn without_focus(results: &Results, time: &[(&Summary, f64)], peak: &[(&Summary, f64)]) -> Vec<String> {
    let mut sentences = match results.summary.iter().find(|summary| summary.allocator == FOCUS) {
        Some(focus) => failures(results, focus),
        None => vec!["HAKMEM was not among the allocators of this run.".to_owned()],
    };
    if let (Some(fast), Some(small)) = (time.first(), peak.first()) {
        let (fast_name, small_name) = (&fast.0.allocator, &small.0.allocator);
        let (fast, small) = (words::ratio(fast.1), words::ratio(small.1));
        sentences.push(format!(
            "Fastest over all rows is {fast_name}, {fast} times the row's best; smallest is {small_name}, {small} times: \
             geometric means."
        ));
    }
    sentences
}

fn both_better(time: &[(&Summary, f64)], peak: &[(&Summary, f64)], time_mean: f64, peak_mean: f64) -> String {
    let better: Vec<String> = time
        .iter()
        .filter(|(_, mean)| *mean < time_mean)
        .filter(|(fast, _)| {
            peak.iter().any(|(small, mean)| small.allocator == fast.allocator && *mean < peak_mean)
        })
        .map(|(summary, _)| summary.allocator.clone())
        .collect();
    match &better[..] {
        [] => "No other allocator here is better than HAKMEM in both.".to_owned(),
        [one] => format!("{one} is better than HAKMEM in both."),
        many => format!("{} are better than HAKMEM in both.", words::list(many)),
    }
}

fn not_best(focus: &Summary) -> String {
    let of = counted(u64::from(focus.rows), "row", "rows");
    let worst = |worse: &Worse, what| {
        let (ratio, interval) = (words::ratio(worse.ratio.median), words::interval(&worse.ratio));
        format!("the furthest in {}: {ratio} times {}'s {what}, interval {interval}", worse.row, worse.best)
    };
    let part = |list: &[Worse], adjective, what| match list {
        [] => format!("the {adjective}, or within the interval of it, in every row"),
        [first, ..] => format!("not the {adjective} in {} of {of} ({})", list.len(), worst(first, what)),
    };
    format!(
        "HAKMEM is {}, and {}.",
        part(&focus.time_worse, "fastest", "time"),
        part(&focus.peak_worse, "smallest", "peak memory")
    )
}

fn failures(results: &Results, focus: &Summary) -> Vec<String> {
    let error = |row: &String| {
        let row = results.rows.iter().find(|candidate| candidate.name == *row)?;
        row.cells.iter().find(|cell| cell.allocator == FOCUS)?.error.clone()
    };
    let failed: Vec<String> = focus
        .failed
        .iter()
        .map(|row| error(row).map_or(row.clone(), |error| format!("{row} ({error})")))
        .collect();
    match failed.len() {
        0 => Vec::new(),
        _ => vec![format!("HAKMEM failed in {}.", words::list(&failed))],
    }
}

pub fn worse(results: &Results) -> Vec<WorseList> {
    let Some(focus) = focus(results) else { return Vec::new() };
    let list = |what, title: &str, worse: &[Worse]| WorseList {
        title: format!("{title}: {} of {}", worse.len(), counted(u64::from(focus.rows), "row", "rows")),
        what,
        rows: worse.iter().map(|worse| worse_row(results, &worse.row, &worse.ratio, &worse.best)).collect(),
    };
    let mut lists = vec![
        list("time", "Not the fastest", &focus.time_worse),
        list("peak", "Not the smallest at the peak", &focus.peak_worse),
    ];
    let after = after_worse(results);
    if let Some((worse, rows)) = after {
        lists.push(WorseList {
            title: format!(
                "Not the smallest after the work: {} of {}",
                worse.len(),
                counted(rows, "row", "rows")
            ),
            what: "memory after",
            rows: worse,
        });
    }
    lists
}

fn worse_row(results: &Results, row: &str, ratio: &Ratio, best: &str) -> WorseRow {
    WorseRow {
        index: results.rows.iter().position(|candidate| candidate.name == row),
        row: row.to_owned(),
        ratio: words::ratio(ratio.median),
        interval: words::interval(ratio),
        best: words::allocator(best).to_owned(),
    }
}

/// The file has no ratios of the memory after the work: medians over the smallest median, and the interval over it.
fn after_worse(results: &Results) -> Option<(Vec<WorseRow>, u64)> {
    let mut worse = Vec::new();
    let mut rows = 0;
    for row in results.rows.iter().filter(|row| row.resident_after) {
        let after = super::strips::after_ratios(row);
        let Some((_, ratio)) = after.iter().find(|(name, _)| *name == FOCUS) else { continue };
        rows += 1;
        let Some((best, best_ratio)) = after.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median)) else {
            continue;
        };
        if ratio.low > best_ratio.high {
            worse.push((ratio.median, worse_row(results, &row.name, ratio, best)));
        }
    }
    worse.sort_by(|a, b| b.0.total_cmp(&a.0));
    (rows > 0).then(|| (worse.into_iter().map(|(_, row)| row).collect(), rows))
}

pub fn ranks(results: &Results) -> Vec<Rank> {
    let (time, peak) = (ranking(results, By::Time), ranking(results, By::Peak));
    let place = |summary: &Summary| {
        time.iter().position(|(of, _)| of.allocator == summary.allocator).unwrap_or(usize::MAX)
    };
    let is_first = |ranking: &[(&Summary, f64)], summary: &Summary| {
        ranking.first().is_some_and(|(first, _)| first.allocator == summary.allocator)
    };
    let mut summaries: Vec<(usize, &Summary)> = results
        .summary
        .iter()
        .filter_map(|summary| {
            let name = &summary.allocator;
            Some((results.allocators.iter().position(|allocator| allocator.name == *name)?, summary))
        })
        .collect();
    summaries.sort_by_key(|(_, summary)| place(summary));
    let mean = |mean: Option<f64>| mean.map_or(words::NONE.to_owned(), words::ratio);
    summaries
        .into_iter()
        .map(|(index, summary)| Rank {
            index,
            time: mean(summary.time_over_best),
            peak: mean(summary.peak_over_best),
            is_time_best: is_first(&time, summary),
            is_peak_best: is_first(&peak, summary),
            time_best_rows: summary.time_best_rows,
            peak_best_rows: summary.peak_best_rows,
            rows: summary.rows,
            failed: summary.failed.join(", "),
        })
        .collect()
}
