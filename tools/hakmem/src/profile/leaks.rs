//! leaks.rs - which sites grow, and how sure that is.
//!
//! A site that leaks has live blocks of every age: each part of the recording left some. What a program makes once is
//! all old; what it uses for a while is all young; a cache that is full sheds what is old. So live bytes are divided
//! by birth into eight parts of the recording, and the median part, times eight, is what grows steadily: a start-up
//! or a moment's use changes one part or two and the median not at all. A site that began to leak late has at least
//! both halves, and counts for less. The interval's lower end takes the place of the estimate where samples are few.
//! Where the live bytes were also watched while recording, growth that ends half way counts for less.
//! Measured: a leak of 1 allocation in 100 in a C++, a Rust and a Python program: test/tool/leaks.py.

use super::model::{Profile, Stack};
use super::site;

pub struct Leak {
    pub name: String,
    pub callers: Vec<String>,
    pub live_bytes: u64,
    pub live_low: u64,
    pub live_high: u64,
    pub live_count: u64,
    /// Which part of what it asked for while recording lives; None: it asked for nothing.
    pub kept: Option<f64>,
    pub bytes_per_second: f64,
    evidence: f64,
}

const PARTS: usize = 8;

/// By evidence of growing.
pub fn leaks(profile: &Profile) -> Vec<Leak> {
    let seconds = (profile.recording.duration_ms as f64 / 1000.0).max(0.001);
    let mut leaks: Vec<Leak> = site::sites(profile, |stack| stack.live.bytes)
        .into_iter()
        .filter_map(|site| {
            let stacks: Vec<&Stack> = site.stacks.iter().map(|at| &profile.stacks[*at as usize]).collect();
            let births = added(stacks.iter().map(|stack| stack.live_by_birth.as_slice()));
            let sum = |part: fn(&Stack) -> u64| stacks.iter().map(|stack| part(stack)).sum::<u64>();
            let live_bytes = sum(|stack| stack.live.bytes);
            let samples = sum(|stack| stack.live.samples);
            if live_bytes == 0 || samples == 0 {
                return None;
            }
            let spread = |end: fn(&Stack) -> u64| {
                let square = |stack: &&Stack| (end(stack) as f64 - stack.live.bytes as f64).powi(2);
                stacks.iter().map(square).sum::<f64>().sqrt()
            };
            let low = (live_bytes as f64 - spread(|stack| stack.live.bytes_low)).max(0.0);
            let high = live_bytes as f64 + spread(|stack| stack.live.bytes_high);
            let steady = steady_bytes(&births);
            let over_time = added_over_time(&stacks);
            let evidence = steady * (low / live_bytes as f64).max(0.01) * growth_lasts(&over_time);
            (evidence > 0.0).then(|| Leak {
                name: site.name,
                callers: site::callers(profile, stacks[0], 3),
                live_bytes,
                live_low: low as u64,
                live_high: high as u64,
                live_count: sum(|stack| stack.live.count),
                kept: kept(
                    live_bytes.saturating_sub(sum(|stack| stack.live_earlier_bytes)),
                    sum(|stack| stack.allocated.bytes),
                ),
                bytes_per_second: steady / seconds,
                evidence,
            })
        })
        .collect();
    leaks.sort_by(|a, b| b.evidence.total_cmp(&a.evidence).then(a.name.cmp(&b.name)));
    leaks
}

/// Both are estimates, of the same samples.
fn kept(live_bytes: u64, allocated_bytes: u64) -> Option<f64> {
    (allocated_bytes > 0).then(|| (live_bytes as f64 / allocated_bytes as f64).min(1.0))
}

fn added<'a>(rows: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut sum: Vec<u64> = Vec::new();
    for row in rows {
        if sum.len() < row.len() {
            sum.resize(row.len(), 0);
        }
        row.iter().zip(&mut sum).for_each(|(value, sum)| *sum += value);
    }
    sum
}

fn added_over_time(stacks: &[&Stack]) -> Vec<u64> {
    let rows: Vec<Vec<u64>> =
        stacks.iter().map(|stack| stack.live_over_time.iter().map(|at| at.bytes).collect()).collect();
    added(rows.iter().map(Vec::as_slice))
}

/// What grew at a steady pace, of live bytes by birth.
fn steady_bytes(births: &[u64]) -> f64 {
    let parts: Vec<f64> = (0..PARTS)
        .map(|part| {
            let (from, to) = (births.len() * part / PARTS, births.len() * (part + 1) / PARTS);
            births[from..to].iter().sum::<u64>() as f64
        })
        .collect();
    let mut ordered = parts.clone();
    ordered.sort_by(f64::total_cmp);
    let median = 0.5 * (ordered[PARTS / 2 - 1] + ordered[PARTS / 2]);
    let half = |range: &[f64]| range.iter().sum::<f64>();
    let both = half(&parts[..PARTS / 2]).min(half(&parts[PARTS / 2..]));
    (median * PARTS as f64).max(0.25 * both)
}

/// 1: the live bytes grew as much in the second half as in the first; 0.2: not at all. 1 where nobody watched.
fn growth_lasts(over_time: &[u64]) -> f64 {
    if over_time.len() < 8 {
        return 1.0;
    }
    let quarter = over_time.len() / 4;
    let mean = |range: &[u64]| range.iter().sum::<u64>() as f64 / range.len().max(1) as f64;
    let early = mean(&over_time[quarter..2 * quarter]) - mean(&over_time[..quarter]);
    let late = mean(&over_time[over_time.len() - quarter..]) - mean(&over_time[2 * quarter..3 * quarter]);
    if early <= 0.0 {
        return if late > 0.0 { 1.0 } else { 0.2 };
    }
    0.2 + 0.8 * (late / early).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn what_grows_is_told_from_what_is_there_and_from_what_comes_and_goes() {
        let leaks = leaks(&sample::profile());
        assert_eq!(leaks[0].name, "Node::make (node.h:7)");
        assert!(leaks.len() < 2 || leaks[1].evidence < leaks[0].evidence / 100.0);
        assert!(leaks[0].bytes_per_second > 4.9e6 && leaks[0].bytes_per_second < 5.5e6);
    }

    #[test]
    fn what_lives_of_an_earlier_recording_is_no_part_of_what_this_one_saw_asked_for() {
        let mut profile = sample::profile();
        let all = leaks(&profile)[0].kept.unwrap();
        for stack in &mut profile.stacks {
            stack.live_earlier_bytes = stack.live.bytes / 2;
        }
        assert!((leaks(&profile)[0].kept.unwrap() - all / 2.0).abs() < 1e-6);
        profile.stacks.iter_mut().for_each(|stack| stack.allocated = Default::default());
        assert_eq!(leaks(&profile)[0].kept, None);
    }

    #[test]
    fn a_start_or_a_moment_is_no_growth() {
        assert_eq!(steady_bytes(&[900, 0, 0, 0, 0, 0, 0, 0]), 0.0);
        assert!(steady_bytes(&[900, 0, 0, 0, 0, 0, 0, 50]) < 13.0);
        assert_eq!(steady_bytes(&[10; 16]), 160.0);
        assert_eq!(steady_bytes(&[]), 0.0);
        // Late, and lasting.
        assert!(steady_bytes(&[0, 0, 5, 5, 10, 10, 10, 10]) > 50.0);
    }

    #[test]
    fn growth_that_ends_counts_less() {
        let line: Vec<u64> = (0..16).map(|at| at * 10).collect();
        assert!(growth_lasts(&line) > 0.99);
        let full: Vec<u64> = (0..16).map(|at| (at * 20).min(80)).collect();
        assert!(growth_lasts(&full) < 0.3);
        assert_eq!(growth_lasts(&[1, 2, 3]), 1.0);
    }
}
