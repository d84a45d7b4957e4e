//! shift.rs - how far one set of measurements lies from another, and whether that is more than noise.
//!
//! The test is Mann and Whitney's U (Wilcoxon's rank sum): nothing is assumed of how times are distributed, and one
//! outlier weighs as much as any other run. The size of the shift is Hodges and Lehmann's estimate, the median of all
//! differences between the two sets, and its interval is the one that the same test gives. Both work on logarithms,
//! so that a shift is a ratio.
//! Invariant: without ties, the interval leaves out 1 if and only if the test says "more than noise".
//! Rejected:  a bootstrap of the ratio of medians: with 5 runs a side its intervals are far too narrow.

use serde::Serialize;

/// Sure enough to call a change real; the interval is the one of 1 - ALPHA.
pub const ALPHA: f64 = 0.01;
/// Up to so many values in both sets the distribution is counted out, above that it is normal enough.
const EXACT_COUNT_MAX: usize = 24;
/// Of the normal distribution, for ALPHA from both sides.
const NORMAL_QUANTILE: f64 = 2.575_829_303_549;

/// New over old.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shift {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// Of the test, from both sides.
    pub p: f64,
}

/// None when there are too few values for the test to be able to say "more than noise", or some are not numbers.
pub fn shift(old_logs: &[f64], new_logs: &[f64]) -> Option<Shift> {
    if old_logs.iter().chain(new_logs).any(|value| !value.is_finite()) {
        return None;
    }
    let (old_count, new_count) = (old_logs.len(), new_logs.len());
    let rank = interval_rank(old_count, new_count)?;
    let mut differences: Vec<f64> =
        new_logs.iter().flat_map(|new| old_logs.iter().map(move |old| new - old)).collect();
    differences.sort_by(f64::total_cmp);
    Some(Shift {
        ratio: median_of_sorted(&differences).exp(),
        low: differences[rank].exp(),
        high: differences[differences.len() - 1 - rank].exp(),
        p: rank_sum_p(old_logs, new_logs),
    })
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The interval goes from the difference of this rank, counted from 0, to the one of the same rank from the end.
fn interval_rank(old_count: usize, new_count: usize) -> Option<usize> {
    if old_count == 0 || new_count == 0 {
        return None;
    }
    let all = old_count + new_count;
    if all > EXACT_COUNT_MAX {
        let (n, m) = (old_count as f64, new_count as f64);
        let rank = n * m / 2.0 - NORMAL_QUANTILE * (n * m * (n + m + 1.0) / 12.0).sqrt();
        return if rank >= 1.0 { Some(rank as usize - 1) } else { None };
    }
    let ranks: Vec<usize> = (1..=all).map(|rank| 2 * rank).collect();
    let ways = ways_by_sum(&ranks, new_count);
    let total: f64 = ways.iter().sum();
    // U is the rank sum less its smallest value; U + 1 differences lie outside on each side.
    let smallest = new_count * (new_count + 1);
    let mut below = 0.0;
    let mut rank = None;
    for (u, sum) in (smallest..ways.len()).step_by(2).enumerate() {
        below += ways[sum];
        if 2.0 * below / total >= ALPHA {
            break;
        }
        rank = Some(u);
    }
    rank
}

/// In how many ways `count` of the ranks (twice their value: ties share a mean) have each sum.
fn ways_by_sum(ranks_doubled: &[usize], count: usize) -> Vec<f64> {
    let sum_max: usize = ranks_doubled.iter().sum();
    let mut ways = vec![vec![0.0; sum_max + 1]; count + 1];
    ways[0][0] = 1.0;
    for &rank in ranks_doubled {
        for taken in (1..=count).rev() {
            let (fewer, these) = ways.split_at_mut(taken);
            for (way, before) in these[0][rank..].iter_mut().zip(&fewer[taken - 1]) {
                *way += before;
            }
        }
    }
    ways.swap_remove(count)
}

fn rank_sum_p(old: &[f64], new: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = old.iter().map(|&value| (value, false)).collect();
    all.extend(new.iter().map(|&value| (value, true)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks_doubled = vec![0; all.len()];
    let mut ties = 0.0;
    let mut from = 0;
    while from < all.len() {
        let to = from + all[from..].iter().take_while(|(value, _)| *value == all[from].0).count();
        ranks_doubled[from..to].fill(from + 1 + to);
        let equal = (to - from) as f64;
        ties += equal * equal * equal - equal;
        from = to;
    }
    let sum: usize =
        all.iter().zip(&ranks_doubled).filter(|((_, is_new), _)| *is_new).map(|(_, rank)| rank).sum();
    // Twice the mean of the doubled sum is whole: new values times (all + 1) times 2.
    let mean_twice = 2 * new.len() * (all.len() + 1);
    let away = (2 * sum).abs_diff(mean_twice);
    if all.len() <= EXACT_COUNT_MAX {
        let ways = ways_by_sum(&ranks_doubled, new.len());
        let total: f64 = ways.iter().sum();
        let as_far: f64 = ways
            .iter()
            .enumerate()
            .filter(|(sum, _)| (2 * sum).abs_diff(mean_twice) >= away)
            .map(|(_, ways)| ways)
            .sum();
        return as_far / total;
    }
    let (n, m) = (old.len() as f64, new.len() as f64);
    let count = n + m;
    let variance = n * m / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    // `away` is four times the distance of U from its mean; half a step is taken off for continuity.
    let z = (away as f64 / 4.0 - 0.5).max(0.0) / variance.sqrt();
    normal_outside(z)
}

/// The probability of a normal value at least `z` away from the mean: Numerical Recipes' erfc, good to 1.2e-7.
fn normal_outside(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    const TERMS: [f64; 9] = [
        1.00002368,
        0.37409196,
        0.09678418,
        -0.18628806,
        0.27886807,
        -1.13520398,
        1.48851587,
        -0.82215223,
        0.17087277,
    ];
    let polynomial = TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    t * (-x * x - 1.26551223 + polynomial).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| value.ln()).collect()
    }

    #[test]
    fn the_probability_is_that_of_the_published_tables() {
        // All of five above all of five: 2 of 252 ways.
        let (old, new) = (logs(&[1.0, 2.0, 3.0, 4.0, 5.0]), logs(&[6.0, 7.0, 8.0, 9.0, 10.0]));
        assert!((rank_sum_p(&old, &new) - 2.0 / 252.0).abs() < 1e-12);
        // U = 2 of 5 against 5 is the table's 5% limit, U = 0 its 1% limit.
        let new = logs(&[3.5, 5.5, 6.0, 7.0, 8.0]);
        let p = rank_sum_p(&old, &new);
        assert!(p > 0.01 && p < 0.05, "{p}");
        assert_eq!(rank_sum_p(&old, &old), 1.0);
    }

    #[test]
    fn ties_are_counted_out_too() {
        // Ranks 1.5 1.5 4.5 4.5 against 4.5 4.5 7.5 7.5: of the 70 ways to choose four, 6 are as far to each side.
        let p = rank_sum_p(&[1.0, 1.0, 2.0, 2.0], &[2.0, 2.0, 3.0, 3.0]);
        assert!((p - 12.0 / 70.0).abs() < 1e-12, "{p}");
        assert_eq!(rank_sum_p(&[5.0; 6], &[5.0; 6]), 1.0);
        assert_eq!(rank_sum_p(&[5.0; 60], &[5.0; 60]), 1.0);
    }

    #[test]
    fn many_values_agree_with_few_where_they_meet() {
        assert!((normal_outside(0.0) - 1.0).abs() < 1e-6);
        assert!((normal_outside(1.959964) - 0.05).abs() < 1e-6);
        assert!((normal_outside(NORMAL_QUANTILE) - ALPHA).abs() < 1e-6);
        let old: Vec<f64> = (0..12).map(f64::from).collect();
        let new: Vec<f64> = (0..12).map(|at| f64::from(at) + 4.5).collect();
        let exact = rank_sum_p(&old, &new);
        let mut longer = old.clone();
        longer.push(5.75);
        let normal = rank_sum_p(&longer, &new);
        assert!((exact - normal).abs() < 0.01 && exact > 0.001 && exact < 0.05, "{exact} {normal}");
    }

    #[test]
    fn a_shift_is_found_with_its_size() {
        let old: Vec<f64> = (0..9).map(|at| (100.0 + f64::from(at * 7 % 9)).ln()).collect();
        let new: Vec<f64> = old.iter().map(|log| log + 1.2_f64.ln()).collect();
        let shift = shift(&old, &new).unwrap();
        assert!((shift.ratio - 1.2).abs() < 0.01, "{shift:?}");
        assert!(shift.p < 0.001 && shift.low > 1.1 && shift.high < 1.3, "{shift:?}");
        assert!(shift.low <= 1.2 && shift.high >= 1.2, "{shift:?}");
    }

    #[test]
    fn too_few_values_say_nothing() {
        let four = logs(&[1.0, 1.1, 1.2, 1.3]);
        let five = logs(&[9.0, 9.1, 9.2, 9.3, 9.4]);
        assert_eq!(shift(&four, &four), None);
        assert!(shift(&five, &five).is_some());
        assert_eq!(shift(&[], &five), None);
        assert_eq!(shift(&[f64::NAN; 9], &five), None);
    }

    #[test]
    fn interval_and_test_agree() {
        let mut state = 42_u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut found, tried) = (0, 2000);
        for round in 0..tried {
            let count = 5 + round % 7;
            let old: Vec<f64> = (0..count).map(|_| random()).collect();
            let new: Vec<f64> = (0..count).map(|_| random()).collect();
            let shift = shift(&old, &new).unwrap();
            let is_outside = shift.low > 1.0 || shift.high < 1.0;
            assert_eq!(shift.p < ALPHA, is_outside, "{shift:?}");
            found += usize::from(is_outside);
        }
        // The same distribution: at most about one in a hundred, the promise of the test.
        assert!(found < tried / 50, "{found} of {tried}");
    }
}
