//! budget.rs - how the time is shared: every row gets its least number of rounds first, what is left goes to all alike.
//!
//! Rows cost from a hundredth of a second to several seconds a run. Equal shares would give the short ones more rounds
//! than they need, and the long ones a single one. So each program is run once before anything is measured (it warms
//! up the file cache too), and its row's share is planned from that.
//!
//! Half of the time is for this. The other half is for the rows that are not steady by then, again in two passes: what a
//! row knows comes from different minutes, and a machine that is slower in one of them is not mistaken for a row.

use std::time::Duration;

/// Rounds that a row should get, before any row gets more.
const ROUNDS_MIN: u32 = 3;
/// A round costs so many times HAKMEM's run, per allocator: others are slower, and processes have to be started.
const COST_FACTOR: f64 = 1.4;
/// A row whose program could not be tried.
const COST_UNKNOWN: Duration = Duration::from_millis(200);

/// What a round of a row costs, from one run of its program.
pub fn round_cost(run: Option<Duration>, allocator_count: usize) -> Duration {
    run.unwrap_or(COST_UNKNOWN).mul_f64(COST_FACTOR * allocator_count as f64)
}

/// What a row may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// For its least rounds, as planned from one run.
    least: Duration,
    /// For more.
    extra: Duration,
}

impl Share {
    /// What the row may take altogether, now that we know what its rounds take. A plan that was made while the machine
    /// was busy with something else does not become more rounds.
    pub fn limit(&self, round: Duration) -> Duration {
        self.least.min(round * ROUNDS_MIN) + self.extra
    }

    /// In a pass after the first no rounds are promised.
    pub fn rounds_min(&self) -> u32 {
        if self.least.is_zero() { 1 } else { ROUNDS_MIN }
    }
}

/// The share of the first of the rows that are left, of the time that is left.
pub fn share(round_costs: &[Duration], left: Duration, row_max: Duration) -> Share {
    let first = round_costs.first().copied().unwrap_or_default() * ROUNDS_MIN;
    let least: Duration = round_costs.iter().map(|cost| *cost * ROUNDS_MIN).sum();
    if least > left {
        let part = first.as_secs_f64() / least.as_secs_f64();
        return Share { least: left.mul_f64(part), extra: Duration::ZERO };
    }
    let rows = u32::try_from(round_costs.len()).unwrap_or(u32::MAX).max(1);
    Share { least: first, extra: ((left - least) / rows).min(row_max.saturating_sub(first)) }
}

/// The share of the first of the rows that go on in a later pass: by their weights. None if not even one of its rounds
/// fits.
pub fn share_again(weights: &[u32], left: Duration, round_cost: Duration) -> Option<Share> {
    let all: u32 = weights.iter().sum();
    let extra = left * weights.first().copied().unwrap_or_default() / all.max(1);
    (round_cost <= extra).then_some(Share { least: Duration::ZERO, extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seconds(least: u32, extra: u32) -> Share {
        Share { least: least * SECOND, extra: extra * SECOND }
    }

    #[test]
    fn every_row_gets_its_least_rounds_and_an_equal_part_of_the_rest() {
        let costs = [SECOND, 4 * SECOND, SECOND];
        // 18 s are the least; of the other 12 s each row gets 4.
        assert_eq!(share(&costs, 30 * SECOND, 60 * SECOND), seconds(3, 4));
        assert_eq!(share(&costs[1..], 23 * SECOND, 60 * SECOND), seconds(12, 4));
        assert_eq!(share(&costs[2..], 7 * SECOND, 60 * SECOND), seconds(3, 4));
    }

    #[test]
    fn too_little_time_is_shared_by_what_the_rows_cost() {
        let costs = [SECOND, 4 * SECOND];
        assert_eq!(share(&costs, 5 * SECOND, 60 * SECOND), seconds(1, 0));
        assert_eq!(share(&costs[1..], 4 * SECOND, 60 * SECOND), seconds(4, 0));
        assert_eq!(share(&costs, Duration::ZERO, 60 * SECOND), seconds(0, 0));
    }

    #[test]
    fn a_row_alone_does_not_take_everything() {
        assert_eq!(share(&[SECOND], 600 * SECOND, 30 * SECOND), seconds(3, 27));
        assert_eq!(share(&[20 * SECOND], 600 * SECOND, 30 * SECOND), seconds(60, 0), "but its least rounds");
    }

    #[test]
    fn rounds_that_take_less_than_planned_leave_it_to_others() {
        assert_eq!(seconds(12, 4).limit(SECOND), 7 * SECOND);
        assert_eq!(seconds(12, 4).limit(9 * SECOND), 16 * SECOND);
    }

    #[test]
    fn what_is_left_goes_to_the_rows_that_need_it_by_weight() {
        assert_eq!(share_again(&[2, 1, 1], 8 * SECOND, SECOND), Some(seconds(0, 4)));
        assert_eq!(share_again(&[1, 1], 8 * SECOND, 5 * SECOND), None, "not even one round");
        assert_eq!(seconds(0, 4).rounds_min(), 1);
    }

    #[test]
    fn a_round_is_a_run_of_each() {
        assert_eq!(round_cost(Some(SECOND), 10), 14 * SECOND);
        assert_eq!(round_cost(None, 5), Duration::from_millis(1400));
    }
}
