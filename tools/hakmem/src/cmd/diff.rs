//! `hakmem diff`: two profiles side by side, place by place; what changed beyond doubt is marked.

use crate::profile::file;
use crate::profile::interval::poisson_interval;
use crate::profile::model::{Profile, Stack};
use crate::profile::site;
use crate::text::{self, Failure};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// The profile before
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The profile after
    #[arg(value_name = "B")]
    after: PathBuf,

    /// How many places
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    top: usize,

    /// Compare what was allocated each second instead of what lives
    #[arg(long)]
    allocated: bool,
}

/// What a place holds, or asks for in a second, and how far off that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figure {
    bytes: f64,
    below_square: f64,
    above_square: f64,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let (before, after) = (file::read(&arguments.before)?, file::read(&arguments.after)?);
    let rows = compared(&before, &after, arguments.allocated);
    let unit = if arguments.allocated { "/s" } else { "" };
    for (name, a, b) in rows.iter().take(arguments.top) {
        let mark = if is_beyond_doubt(a, b) { '*' } else { ' ' };
        let change = b.bytes - a.bytes;
        println!(
            "{mark} {:>12}{unit}  {:>10}{unit} -> {:>10}{unit}  {name}",
            format!("{}{}", if change < 0.0 { '-' } else { '+' }, text::bytes(change.abs() as u64)),
            text::bytes(a.bytes as u64),
            text::bytes(b.bytes as u64),
        );
    }
    let sum = |side: fn(&(String, Figure, Figure)) -> f64| rows.iter().map(side).sum::<f64>() as u64;
    let (a, b) = (sum(|row| row.1.bytes), sum(|row| row.2.bytes));
    let what = if arguments.allocated { "allocated a second" } else { "live" };
    println!(
        "{}, {} {what} before and {} after; * the 95% intervals do not touch",
        text::counted(rows.len() as u64, "place", "places"),
        text::bytes(a),
        text::bytes(b),
    );
    if !arguments.allocated && before.recording.is_attached != after.recording.is_attached {
        println!(
            "one recording began with the program and the other later: what lives is not the same in both"
        );
    }
    Ok(0)
}

fn is_beyond_doubt(a: &Figure, b: &Figure) -> bool {
    a.bytes + a.above_square.sqrt() < b.bytes - b.below_square.sqrt()
        || b.bytes + b.above_square.sqrt() < a.bytes - a.below_square.sqrt()
}

/// The largest changes first.
fn compared(before: &Profile, after: &Profile, allocated: bool) -> Vec<(String, Figure, Figure)> {
    let (mut a, b) = (figures(before, allocated), figures(after, allocated));
    let (none_before, none_after) = (figure_of_none(before, allocated), figure_of_none(after, allocated));
    let mut rows: Vec<(String, Figure, Figure)> = b
        .into_iter()
        .map(|(name, figure)| (a.remove(&name).unwrap_or(none_before), name, figure))
        .map(|(a, n, b)| (n, a, b))
        .collect();
    rows.extend(a.into_iter().map(|(name, figure)| (name, figure, none_after)));
    rows.sort_by(|x, y| (y.2.bytes - y.1.bytes).abs().total_cmp(&(x.2.bytes - x.1.bytes).abs()));
    rows
}

/// Of a place that no sample was of: up to 3.69 times what lies between two samples on an average may be there (Garwood's interval of
/// no event, profile/interval.rs).
fn figure_of_none(profile: &Profile, allocated: bool) -> Figure {
    let above = poisson_interval(0.0).1 * profile.recording.rate_bytes as f64 * scale_of(profile, allocated);
    Figure { above_square: above.powi(2), ..Figure::default() }
}

fn scale_of(profile: &Profile, allocated: bool) -> f64 {
    if allocated { 1.0 / (profile.recording.duration_ms as f64 / 1000.0).max(0.001) } else { 1.0 }
}

fn figures(profile: &Profile, allocated: bool) -> BTreeMap<String, Figure> {
    let scale = scale_of(profile, allocated);
    let of = |stack: &Stack| if allocated { stack.allocated } else { stack.live };
    let mut figures: BTreeMap<String, Figure> = BTreeMap::new();
    for site in site::sites(profile, |stack| stack.live.bytes) {
        let figure = figures.entry(site.name).or_default();
        for at in site.stacks {
            let amount = of(&profile.stacks[at as usize]);
            figure.bytes += amount.bytes as f64 * scale;
            figure.below_square += (amount.bytes.saturating_sub(amount.bytes_low) as f64 * scale).powi(2);
            figure.above_square += (amount.bytes_high.saturating_sub(amount.bytes) as f64 * scale).powi(2);
        }
    }
    figures.retain(|_, figure| figure.bytes > 0.0);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn equal_profiles_differ_nowhere_and_changes_are_marked() {
        let before = sample::profile();
        let same = compared(&before, &before, false);
        assert!(same.iter().all(|(_, a, b)| a == b && !is_beyond_doubt(a, b)));
        let mut after = before.clone();
        let live = &mut after.stacks[1].live;
        (live.bytes, live.bytes_low, live.bytes_high) =
            (live.bytes * 3, live.bytes_low * 3, live.bytes_high * 3);
        let rows = compared(&before, &after, false);
        assert_eq!(rows[0].0, "Cache::insert(Key, Value) (cache.cc:41)");
        assert!(is_beyond_doubt(&rows[0].1, &rows[0].2));
    }

    /// One sample of a place says little of a profile that has none of it; many do.
    #[test]
    fn a_place_that_is_new_is_marked_where_it_is_more_than_a_sample_may_miss() {
        let after = sample::profile();
        let mut before = after.clone();
        before.stacks[1].live = Default::default();
        let rate = before.recording.rate_bytes as f64;
        let none = figure_of_none(&before, false);
        assert!((none.above_square.sqrt() - 3.6889 * rate).abs() < 0.001 * rate);
        let of = |low: f64| Figure { bytes: rate * 9.0, below_square: (rate * 9.0 - low).powi(2), above_square: 0.0 };
        assert!(!is_beyond_doubt(&none, &of(rate * 3.0)) && is_beyond_doubt(&none, &of(rate * 4.0)));
        let new = compared(&before, &after, false);
        let row = new.iter().find(|row| row.1.bytes == 0.0).unwrap();
        assert_eq!(row.1, none);
    }
}
