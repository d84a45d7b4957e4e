//! statistics.rs - medians, their 95% intervals, ratios and geometric means.
//!
//! Method: the interval of a median is that of the order statistics, distribution-free: the k-th smallest to the
//!         k-th largest of n values covers the median with probability 1 - 2 P(Binomial(n, 1/2) < k). Between the two
//!         k that enclose 95% it is interpolated (Hettmansperger and Sheather 1986). Fewer than 6 values cannot
//!         enclose 95%: their interval is from the smallest to the largest, and no row is called steady by it.
//!         Ratios: Hodges and Lehmann's estimate on their logarithms, the median of the means of all pairs, with the
//!         interval of Wilcoxon's signed ranks. The ratio of two times of like spread is symmetric, and there it
//!         knows from two rounds what the median knows from three.
//! Why:    times have outliers to one side on every machine that others use too; a mean and its standard error
//!         believe them. Rejected: a bootstrap of the median, which for 5 to 10 values takes the second smallest
//!         to the second largest and covers 85 to 90%.

use super::results::{Ratio, Spread};

/// For a reader of the result file.
pub const INTERVAL: &str = "95%, of the median, by order statistics, interpolated (Hettmansperger-Sheather); of ratios, \
                            by Wilcoxon's signed ranks (Hodges-Lehmann); fewer than 6 runs: smallest to largest";
/// The least number of values whose order statistics enclose 95%.
pub const ROUNDS_FOR_INTERVAL: usize = 6;
const COVERAGE: f64 = 0.95;

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

pub fn median(values: &[f64]) -> f64 {
    median_sorted(&sorted(values))
}

/// P(Binomial(n, 1/2) <= k).
fn binomial_half(n: usize, k: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut sum = term;
    for i in 0..k {
        term *= (n - i) as f64 / (i + 1) as f64;
        sum += term;
    }
    sum
}

/// How well the k-th smallest to the k-th largest of n values encloses the median.
fn coverage(n: usize, k: usize) -> f64 {
    1.0 - 2.0 * binomial_half(n, k - 1)
}

/// The 95% interval of the median of sorted values.
fn interval_sorted(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len();
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return (f64::NAN, f64::NAN) };
    if n < ROUNDS_FOR_INTERVAL {
        return (*first, *last);
    }
    // The largest k that still encloses enough; k + 1 does not.
    let k = (1..=n / 2).take_while(|k| coverage(n, *k) >= COVERAGE).last().unwrap_or(1);
    if k + 1 > n / 2 {
        return (sorted[k - 1], sorted[n - k]);
    }
    let (wide, narrow) = (coverage(n, k), coverage(n, k + 1));
    let share = (wide - COVERAGE) / (wide - narrow);
    let (n_f, k_f) = (n as f64, k as f64);
    let inner = (n_f - k_f) * share / (k_f + (n_f - 2.0 * k_f) * share);
    let between = |outer: f64, next: f64| (1.0 - inner) * outer + inner * next;
    (between(sorted[k - 1], sorted[k]), between(sorted[n - k], sorted[n - k - 1]))
}

pub fn spread(values: &[f64]) -> Spread {
    let sorted = sorted(values);
    let (low, high) = interval_sorted(&sorted);
    let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
    Spread { median: median_sorted(&sorted), low, high, min: end(sorted.first()), max: end(sorted.last()) }
}

/// Of the ratios of values that were measured in the same round.
pub fn ratio(ours: &[f64], best: &[f64]) -> Ratio {
    let logs: Vec<f64> = ours.iter().zip(best).map(|(own, best)| (own / best).ln()).collect();
    let pairs = logs.iter().enumerate().flat_map(|(at, a)| logs[at..].iter().map(move |b| (a + b) / 2.0));
    let means = sorted(&pairs.collect::<Vec<_>>());
    let (Some(low), Some(high)) = (means.first(), means.last()) else {
        return Ratio { median: f64::NAN, low: f64::NAN, high: f64::NAN };
    };
    let outside = match logs.len() {
        few if few < ROUNDS_FOR_INTERVAL => 0,
        count => signed_rank_outside(count),
    };
    let (low, high) = (means.get(outside).unwrap_or(low), means.iter().nth_back(outside).unwrap_or(high));
    Ratio { median: median_sorted(&means).exp(), low: low.exp(), high: high.exp() }
}

/// How many of the sorted means of pairs lie outside the 95% interval on each side: as many as w has values with
/// 2 P(W <= w) <= 5%, less one, W being the sum of the ranks of those above the middle.
fn signed_rank_outside(count: usize) -> usize {
    const EXACT_MAX: usize = 40;
    if count > EXACT_MAX {
        let n = count as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return (n * (n + 1.0) / 4.0 - 1.959_964 * deviation) as usize;
    }
    let mut ways = vec![0.0; count * (count + 1) / 2 + 1];
    ways[0] = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    for rank in 1..=count {
        (rank..ways.len()).rev().for_each(|sum| ways[sum] += ways[sum - rank]);
    }
    let below = ways.iter().scan(0.0, |below, way| {
        *below += way;
        Some(*below)
    });
    below.take_while(|below| 2.0 * below <= 1.0 - COVERAGE).count().saturating_sub(1)
}

impl Ratio {
    /// Half the interval's width, as a share of the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.median
    }
}

pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn coverage_is_that_of_the_binomial_distribution() {
        assert!(near(coverage(6, 1), 1.0 - 2.0 / 64.0));
        assert!(near(coverage(7, 2), 0.875));
        assert!(near(coverage(10, 2), 0.978515625));
        assert!(near(coverage(10, 3), 0.890625));
        // n = 20, k = 6: the interval that tables of the sign test give for 95%.
        assert!(near(coverage(20, 6), 0.958610535));
    }

    #[test]
    fn the_interval_is_interpolated_between_order_statistics() {
        // n = 10: k = 2 covers 97.85%, k = 3 covers 89.06%; share = 0.02851563 / 0.08789062 = 0.32444444,
        // inner = 8 x share / (2 + 6 x share) = 0.65765766.
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let spread = spread(&values);
        assert!(near(spread.low, 2.0 + 0.657_657_66), "{spread:?}");
        assert!(near(spread.high, 9.0 - 0.657_657_66), "{spread:?}");
        assert_eq!((spread.median, spread.min, spread.max), (5.5, 1.0, 10.0));
    }

    #[test]
    fn six_values_reach_nearly_from_end_to_end_and_five_do() {
        let six = spread(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(six.low > 1.0 && six.low < 1.5 && six.high < 6.0 && six.high > 5.5, "{six:?}");
        let five = spread(&[5.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!((five.low, five.high), (1.0, 5.0));
    }

    #[test]
    fn one_outlier_does_not_widen_the_interval_of_many() {
        let mut values = vec![100.0; 19];
        values.push(900.0);
        let spread = spread(&values);
        assert_eq!((spread.median, spread.low, spread.high, spread.max), (100.0, 100.0, 100.0, 900.0));
    }

    /// What "95%" promises: of many samples of a skewed distribution about one in twenty misses the true median.
    #[test]
    fn about_one_interval_in_twenty_misses() {
        let mut state = 12345_u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [7, 10, 15] {
            let missed = (0..4000)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| -(1.0 - random()).ln()).collect();
                    let spread = spread(&values);
                    !(spread.low..=spread.high).contains(&std::f64::consts::LN_2)
                })
                .count();
            assert!((120..=280).contains(&missed), "{missed} of 4000 with {n} values");
        }
    }

    #[test]
    fn ranks_outside_are_those_of_the_published_tables() {
        // Wilcoxon's table, 5% from both sides: the largest sum that is significant, for n = 6 to 25.
        for (count, sum) in [(6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)] {
            assert_eq!(signed_rank_outside(count), sum, "{count}");
        }
        let (exact, normal) = (signed_rank_outside(40), signed_rank_outside(41));
        assert_eq!(exact, 264);
        assert!((normal as i64 - 279).abs() <= 1, "{normal}");
    }

    #[test]
    fn the_interval_of_a_ratio_misses_one_time_in_twenty() {
        let mut state = 99_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [8, 20, 45] {
            let missed = (0..2000)
                .filter(|_| {
                    let mut times = || (0..n).map(|_| 1.0 - random().ln()).collect::<Vec<f64>>();
                    let (ours, best) = (times(), times());
                    let ratio = ratio(&ours, &best);
                    !(ratio.low..=ratio.high).contains(&1.0)
                })
                .count();
            assert!((50..=140).contains(&missed), "{missed} of 2000 with {n} values");
        }
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The machine was twice as slow in the second round; the ratio does not know.
        let ratio = ratio(&[2.0, 4.0, 2.2], &[1.0, 2.0, 1.1]);
        assert!(near(ratio.median, 2.0) && near(ratio.half_width(), 0.0), "{ratio:?}");
    }

    #[test]
    fn geometric_means_by_hand() {
        assert!(near(geometric_mean(&[1.0, 4.0]).unwrap(), 2.0));
        assert!(near(geometric_mean(&[2.0, 0.5]).unwrap(), 1.0));
        assert!(near(geometric_mean(&[1.0, 2.0, 4.0]).unwrap(), 2.0));
        assert_eq!(geometric_mean(&[]), None);
    }
}
