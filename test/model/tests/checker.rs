//! The checker itself: does it see every outcome that it must?

use loom::sync::atomic::{fence, AtomicUsize, Ordering::*};
use loom::thread;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The results that a model gives in any of its executions.
fn outcomes<T: Ord + Send + 'static>(model: impl Fn() -> T + Sync + Send + 'static) -> BTreeSet<T> {
    let all = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = all.clone();
    loom::model(move || {
        let outcome = model();
        seen.lock().unwrap().insert(outcome);
    });
    Arc::into_inner(all).unwrap().into_inner().unwrap()
}

/// loom 0.7.2 as it is published fails here: a thread's own load hides the other thread's earlier one, and
/// with it each execution in which the store comes first (tokio-rs/loom, issues 166 and 392).
#[test]
fn a_load_before_a_store_hides_nothing() {
    let seen = outcomes(|| {
        let word = Arc::new(AtomicUsize::new(0));
        let other = word.clone();
        let thread = thread::spawn(move || {
            other.load(Relaxed);
            other.store(1, Relaxed);
        });
        let value = word.load(Relaxed);
        thread.join().unwrap();
        value
    });
    assert_eq!(seen, BTreeSet::from([0, 1]), "this loom is not corrected: use test/model/run.py");
}

fn store_then_load(fenced: bool) -> BTreeSet<(usize, usize)> {
    outcomes(move || {
        let words = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let others = words.clone();
        let thread = thread::spawn(move || {
            others[1].store(1, Release);
            if fenced {
                fence(SeqCst);
            }
            others[0].load(Acquire)
        });
        words[0].store(1, Release);
        if fenced {
            fence(SeqCst);
        }
        let mine = words[1].load(Acquire);
        (mine, thread.join().unwrap())
    })
}

#[test]
fn stores_are_seen_late_unless_a_fence_forbids_it() {
    assert!(store_then_load(false).contains(&(0, 0)));
    assert_eq!(store_then_load(true), BTreeSet::from([(0, 1), (1, 0), (1, 1)]));
}
