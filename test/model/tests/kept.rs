//! Spans that a thread keeps for its next large block, and that others may give back (src/heap/kept.c).
//!
//! One span. `used` is its bit in the chunk word, `mark` the KEPT bit of its record; `memory` is written by
//! whoever has the span. The names in two heaps' lists are stale as soon as the span is somewhere else.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    KeepRelaxed,
    ClaimRelaxed,
    GiveRelaxed,
    ClaimLooksThenStores,
    OwnerTakesWithoutClaim,
}
use Mutant::*;

struct World {
    used: AtomicBool,
    mark: AtomicBool,
    memory: UnsafeCell<usize>,
    mutant: Mutant,
}

impl World {
    fn new(mutant: Mutant) -> Arc<World> {
        Arc::new(World {
            used: AtomicBool::new(true),
            mark: AtomicBool::new(false),
            memory: UnsafeCell::new(0),
            mutant,
        })
    }

    /// `order`, but relaxed in this mutant.
    fn unless(&self, mutant: Mutant, order: Ordering) -> Ordering {
        if self.mutant == mutant {
            Relaxed
        } else {
            order
        }
    }

    fn write(&self) {
        self.memory.with_mut(|p| unsafe { *p += 1 });
    }

    /// hak_kept_give: the block was ended, so the span is the caller's alone.
    fn keep(&self) {
        self.mark.store(true, self.unless(KeepRelaxed, Release));
    }

    /// hak_large_claim
    fn claim(&self) -> bool {
        if !self.mark.load(Relaxed) {
            return false;
        }
        if self.mutant == ClaimLooksThenStores {
            self.mark.store(false, Relaxed);
            return true;
        }
        let order = self.unless(ClaimRelaxed, AcqRel);
        self.mark.compare_exchange(true, false, order, Relaxed).is_ok()
    }

    /// hak_span_give
    fn give(&self) {
        self.used.store(false, self.unless(GiveRelaxed, Release));
    }

    /// hak_span_take
    fn take(&self) -> bool {
        self.used.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    fn steal(&self) {
        if self.claim() {
            self.write(); // it may return its pages
            self.give();
        }
    }

    /// The heap's thread wants its span again.
    fn again(&self) -> bool {
        if self.mutant == OwnerTakesWithoutClaim {
            self.mark.store(false, Relaxed);
            return true;
        }
        self.claim()
    }
}

fn spawn(world: &Arc<World>, run: fn(&World)) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || run(&world))
}

/// The owner keeps and takes again; one thread steals; another takes what came free, and keeps it in turn, under
/// the name that the first heap's list still has.
fn kept(mutant: Mutant) {
    let world = World::new(mutant);
    let threads = [
        spawn(&world, |world| world.steal()),
        spawn(&world, |world| {
            if world.take() {
                world.write();
                world.keep();
            }
        }),
    ];
    world.write();
    world.keep();
    if world.again() {
        world.write();
        world.give();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(world.used.load(Relaxed) || !world.mark.load(Relaxed), "kept and free at once");
}

#[test]
fn a_kept_span_has_one_taker() {
    prove("kept: owner, thief, the next owner", None, || kept(Right));
}

#[test]
fn mutants_are_refuted() {
    refute("kept: the mark is set relaxed", RACE, || kept(KeepRelaxed));
    refute("kept: the claim is relaxed", RACE, || kept(ClaimRelaxed));
    refute("kept: the span is given back relaxed", RACE, || kept(GiveRelaxed));
    refute("kept: the claim looks, then stores", RACE, || kept(ClaimLooksThenStores));
    refute("kept: the owner takes without a claim", RACE, || kept(OwnerTakesWithoutClaim));
}
