//! passes.rs - all rows, in passes: first every row, then again those that are not steady yet.
//!
//! Owns:      the order of the rows and how the time is shared between the passes; a share of one is budget.rs's work.
//! Why:       a machine of which others use a part is faster and slower by the minute. What is measured within ten
//!            seconds repeats within those and not an hour later; three times ten seconds minutes apart repeat better.
//! Invariant: whatever was measured is kept, however it ends.

use super::budget;
use super::progress::Progress;
use super::results::{Row, Time};
use super::stand::{Course, Interrupted, Stand};
use super::suite::SuiteRow;
use std::time::{Duration, Instant};

/// The share of the time that is left which each pass may use.
const PASSES: [f64; 3] = [0.5, 0.5, 1.0];

pub struct Plan<'a> {
    pub rows: &'a [SuiteRow],
    /// What a round of each is thought to take.
    pub costs: Vec<Duration>,
    pub budget: Duration,
    pub row_max: Duration,
}

/// What else is done with a row that was measured.
pub trait Keeper {
    /// Counts what was asked for; once a row.
    fn count(&mut self, row: &SuiteRow, measured: &mut Row, progress: &Progress) -> Result<(), Interrupted>;
    /// There is more to be kept than before.
    fn keep(&mut self, courses: &[Course]);
}

/// True if an interrupt ended it.
pub fn measure(stand: &Stand, plan: &Plan, keeper: &mut dyn Keeper, progress: &mut Progress) -> bool {
    let mut courses: Vec<Course> = plan.rows.iter().map(|row| stand.begin(row)).collect();
    let mut left = plan.budget;
    for (pass, part) in PASSES.into_iter().enumerate() {
        let open: Vec<usize> = (0..courses.len()).filter(|at| pass == 0 || !courses[*at].is_done()).collect();
        let mut of_pass = left.mul_f64(part);
        if pass > 0 {
            progress.more(open.len());
        }
        for (done, &at) in open.iter().enumerate() {
            let share = match pass {
                0 => Some(budget::share(&plan.costs[at..], of_pass, plan.row_max.mul_f64(part))),
                _ => {
                    let weights: Vec<u32> = open[done..].iter().map(|at| weight(&courses[*at].row)).collect();
                    budget::share_again(&weights, of_pass, courses[at].round_cost())
                }
            };
            let started = Instant::now();
            let mut ended = match share {
                Some(share) => stand.go_on(&mut courses[at], share, progress),
                None => Ok(()),
            };
            let took = started.elapsed();
            of_pass = of_pass.saturating_sub(took);
            left = left.saturating_sub(took);
            if ended.is_ok() && pass == 0 {
                ended = keeper.count(&plan.rows[at], &mut courses[at].row, progress); // not of the budget
            }
            progress.row_end(&courses[at].row, took, pass > 0);
            keeper.keep(&courses);
            if ended.is_err() {
                return true;
            }
        }
    }
    false
}

/// Rows of one thread can be known well; those of several threads on a few processors less so.
fn weight(row: &Row) -> u32 {
    if row.time == Time::Cpu { 2 } else { 1 }
}
