//! Prove a small protocol, or refute a broken copy of it.
//!
//! Owns:     how a model is run, bounded and counted.
//! Threads:  loom runs a model's threads one at a time, in every order and with every value that the
//!           C11 memory model lets a load see, up to the bound on preemptions.
//! Limits:   no load is satisfied by a store that follows it in its own thread (load buffering); of seq_cst
//!           only fences are known. A compare-exchange that fails reads the newest value: where an old one
//!           matters, a relaxed load stands in front of it.
//! Rejected: `#[should_panic]`; it is content with any panic, a mutant must fail for its own reason.

use std::panic::{catch_unwind, resume_unwind, set_hook, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

/// How often a mutant's threads may be interrupted where they could have gone on: all are refuted in that.
const MUTANT_PREEMPTIONS: usize = 3;

const BRANCHES_MAX: usize = 10_000;

/// What loom says when two accesses to one cell are not ordered, and one of them writes.
pub const RACE: &str = "Causality violation";

/// The number of executions, or why one of them failed.
fn explore<F>(preemptions_max: Option<usize>, model: F) -> Result<usize, String>
where
    F: Fn() + Sync + Send + 'static,
{
    static QUIET: Once = Once::new();
    QUIET.call_once(|| set_hook(Box::new(|_| ())));

    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES_MAX;
    builder.preemption_bound = preemptions_max;
    catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        })
    }))
    .map(|()| count.load(Ordering::Relaxed))
    .map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map_or("no reason".into(), |text| text.to_string()),
    })
}

fn fail(name: &str, text: String) -> ! {
    println!("FAILED    {name}: {text}");
    resume_unwind(Box::new(text))
}

/// Runs every execution of `model`, or those with so many preemptions at most; fails if one of them fails.
pub fn prove<F>(name: &str, preemptions_max: Option<usize>, model: F)
where
    F: Fn() + Sync + Send + 'static,
{
    let start = Instant::now();
    let bound = preemptions_max.map_or("all".into(), |n| format!("up to {n} preemptions"));
    match explore(preemptions_max, model) {
        Ok(count) => {
            println!("proved    {name}: {count} executions, {bound}, {:.1} s", start.elapsed().as_secs_f64())
        }
        Err(text) => fail(name, text),
    }
}

/// Runs `model`, a broken protocol, until an execution fails with `reason` in its message.
pub fn refute<F>(name: &str, reason: &str, model: F)
where
    F: Fn() + Sync + Send + 'static,
{
    match explore(Some(MUTANT_PREEMPTIONS), model) {
        Ok(count) => fail(name, format!("this mutant passed all {count} executions")),
        Err(text) if text.contains(reason) => {
            println!("refuted   {name}: {}", text.lines().next().unwrap_or(""))
        }
        Err(text) => fail(name, format!("this mutant failed for another reason: {text}")),
    }
}
