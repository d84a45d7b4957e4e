//! statistics.rs - medians, their 95% intervals, ratios and geometric means.
//!
//! Method: the interval of a median is that of the order statistics, distribution-free: the k-th smallest to the
//!         k-th largest of n values covers the median with probability 1 - 2 P(Binomial(n, 1/2) < k). Between the two
//!         k that enclose 95% it is interpolated (Hettmansperger and Sheather 1986). Fewer than 6 values cannot
//!         enclose 95%: their interval is from the smallest to the largest, and no row is called steady by it.
//! Why:    times have outliers to one side on every machine that others use too; a mean and its standard error
//!         believe them. Rejected: a bootstrap of the median, which for 5 to 10 values takes the second smallest
//!         to the second largest and covers 85 to 90%.

use super::results::{Ratio, Spread};

/// For a reader of the result file.
pub const INTERVAL: &str = "95%, of the median, by order statistics, interpolated (Hettmansperger-Sheather); fewer \
                            than 6 runs: smallest to largest";
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
    let ratios: Vec<f64> = ours.iter().zip(best).map(|(own, best)| own / best).collect();
    let spread = spread(&ratios);
    Ratio { median: spread.median, low: spread.low, high: spread.high }
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
