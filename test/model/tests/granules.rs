//! Spans: granules are taken and given back by single atomic operations on chunk words, and free dirty
//! ones are returned to the kernel meanwhile (src/memory/chunk.c, src/memory/purge.c).
//!
//! A granule's memory is one number: 0 after the kernel took it back. Its taker writes to it; whoever
//! takes one that is not dirty relies on the 0, as calloc does.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    TakeRelaxed,
    GiveRelaxed,
    TakeLooksThenStores,
    DirtyReadBeforeTake,
    UsedGivenBeforeDirty,
    PurgerTakesNothing,
    PurgerClearsDirtyLate,
    PurgerGivesWhatItDidNotTake,
    RollbackForgets,
    RollbackGivesTooMuch,
}
use Mutant::*;

struct Chunk {
    used: AtomicUsize,
    dirty: AtomicUsize,
    memory: [UnsafeCell<usize>; 2],
}

struct World {
    chunks: [Chunk; 2],
    mutant: Mutant,
}

const ZEROED: &str = "a granule that is not dirty holds old contents";

impl World {
    /// Nothing is used; the granules of `dirty` in chunk 0 hold old contents.
    fn new(dirty: usize, mutant: Mutant) -> Arc<World> {
        let chunk = |dirty: usize| Chunk {
            used: AtomicUsize::new(0),
            dirty: AtomicUsize::new(dirty),
            memory: [UnsafeCell::new(dirty & 1), UnsafeCell::new(dirty >> 1)],
        };
        Arc::new(World { chunks: [chunk(dirty), chunk(0)], mutant })
    }

    /// `order`, but relaxed in this mutant.
    fn unless(&self, mutant: Mutant, order: Ordering) -> Ordering {
        if self.mutant == mutant {
            Relaxed
        } else {
            order
        }
    }

    fn each(&self, c: usize, mask: usize, mut change: impl FnMut(usize, &mut usize)) {
        for (i, memory) in self.chunks[c].memory.iter().enumerate() {
            if mask & (1 << i) != 0 {
                memory.with_mut(|p| change(1 << i, unsafe { &mut *p }));
            }
        }
    }

    /// Takes the granules that `choose` wants, given the used ones; 0 when it wants none.
    fn take(&self, c: usize, choose: impl Fn(usize) -> usize) -> usize {
        let chunk = &self.chunks[c];
        let early = if self.mutant == DirtyReadBeforeTake { Some(chunk.dirty.load(Relaxed)) } else { None };
        let mut used = chunk.used.load(Relaxed);
        let mask = loop {
            let mask = choose(used);
            if mask == 0 {
                return 0;
            }
            if self.mutant == TakeLooksThenStores {
                chunk.used.store(used | mask, Release);
                break mask;
            }
            let order = self.unless(TakeRelaxed, Acquire);
            match chunk.used.compare_exchange(used, used | mask, order, Relaxed) {
                Ok(_) => break mask,
                Err(seen) => used = seen,
            }
        };
        let dirty = early.unwrap_or_else(|| chunk.dirty.load(Relaxed));
        self.each(c, mask & !dirty, |_, memory| assert!(*memory == 0, "{ZEROED}"));
        mask
    }

    fn write_to(&self, c: usize, mask: usize) {
        self.each(c, mask, |_, memory| *memory = 1);
    }

    fn give_used(&self, c: usize, mask: usize) {
        self.chunks[c].used.fetch_and(!mask, self.unless(GiveRelaxed, Release));
    }

    fn give_written(&self, c: usize, mask: usize) {
        if self.mutant == UsedGivenBeforeDirty {
            self.give_used(c, mask);
            self.chunks[c].dirty.fetch_or(mask, Relaxed);
        } else {
            self.chunks[c].dirty.fetch_or(mask, Relaxed);
            self.give_used(c, mask);
        }
    }

    /// Takes the lowest free granule, writes to it, gives it back.
    fn take_write_give(&self, c: usize) {
        let mask = self.take(c, |used| [1, 2].into_iter().find(|&bit| used & bit == 0).unwrap_or(0));
        if mask != 0 {
            self.write_to(c, mask);
            self.give_written(c, mask);
        }
    }

    /// These granules of both chunks as one span, or nothing.
    fn take_run(&self, parts: [usize; 2]) -> bool {
        for c in 0..2 {
            if self.take(c, |used| if used & parts[c] == 0 { parts[c] } else { 0 }) == 0 {
                match self.mutant {
                    RollbackForgets => {}
                    RollbackGivesTooMuch => (0..=c).for_each(|c| self.give_used(c, parts[c])),
                    _ => (0..c).for_each(|c| self.give_used(c, parts[c])),
                }
                return false;
            }
        }
        true
    }

    fn purge(&self, c: usize) {
        let chunk = &self.chunks[c];
        let wanted = chunk.dirty.load(Relaxed);
        let mut used = chunk.used.load(Relaxed);
        let mut mask = wanted & !used;
        if mask == 0 {
            return;
        }
        if self.mutant != PurgerTakesNothing {
            while let Err(seen) = chunk.used.compare_exchange(used, used | mask, Acquire, Relaxed) {
                used = seen;
                mask = wanted & !used;
                if mask == 0 {
                    return;
                }
            }
        }
        let done = mask & chunk.dirty.load(Relaxed);
        self.each(c, done, |_, memory| *memory = 0);
        let given = if self.mutant == PurgerGivesWhatItDidNotTake { wanted | used } else { mask };
        if self.mutant == PurgerClearsDirtyLate {
            self.give_used(c, given);
            chunk.dirty.fetch_and(!done, Relaxed);
        } else {
            chunk.dirty.fetch_and(!done, Relaxed);
            self.give_used(c, given);
        }
    }
}

fn spawn(world: &Arc<World>, run: fn(&World)) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || run(&world))
}

fn nothing_is_used(world: &World) {
    for chunk in &world.chunks {
        assert_eq!(chunk.used.load(Relaxed), 0, "a granule is lost");
    }
}

/// Two threads take, write and give back while a third returns what is free and dirty.
fn purged(mutant: Mutant) {
    let world = World::new(1, mutant);
    let threads = [spawn(&world, |world| world.purge(0)), spawn(&world, |world| world.take_write_give(0))];
    world.take_write_give(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    nothing_is_used(&world);
    let dirty = world.chunks[0].dirty.load(Relaxed);
    world.each(0, 3 & !dirty, |_, memory| assert!(*memory == 0, "{ZEROED}"));
}

/// Two threads return granules at once, while one is taken.
fn purged_twice(mutant: Mutant) {
    let world = World::new(3, mutant);
    let threads = [spawn(&world, |world| world.purge(0)), spawn(&world, |world| world.purge(0))];
    world.take_write_give(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    nothing_is_used(&world);
}

/// Two threads want these granules of both chunks as one span (all; or the end of the first and the beginning of the second), a third one granule of the second chunk.
fn runs<const FIRST: usize, const SECOND: usize>(mutant: Mutant) {
    let world = World::new(0, mutant);
    let run = |world: &World| {
        let parts = [FIRST, SECOND];
        if world.take_run(parts) {
            (0..2).for_each(|c| world.write_to(c, parts[c]));
            (0..2).for_each(|c| world.give_written(c, parts[c]));
        }
    };
    let threads = [spawn(&world, run), spawn(&world, |world| world.take_write_give(1))];
    run(&world);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    nothing_is_used(&world);
}

#[test]
fn no_granule_is_handed_out_twice_and_dirt_is_never_forgotten() {
    prove("granules: take, give, purge", Some(3), || purged(Right));
    prove("granules: two purgers", Some(2), || purged_twice(Right));
}

#[test]
fn a_run_of_chunks_is_taken_whole_or_rolled_back() {
    prove("granules: runs of chunks", Some(3), || runs::<3, 3>(Right));
}

#[test]
fn a_span_from_one_chunk_into_the_next_is_taken_whole_or_rolled_back() {
    prove("granules: from one chunk into the next", Some(3), || runs::<2, 1>(Right));
}

#[test]
fn mutants_are_refuted() {
    refute("granules: the take is relaxed", RACE, || purged(TakeRelaxed));
    refute("granules: the give is relaxed", RACE, || purged(GiveRelaxed));
    refute("granules: take looks, then stores", RACE, || purged(TakeLooksThenStores));
    refute("granules: dirty is read before the take", ZEROED, || purged(DirtyReadBeforeTake));
    refute("granules: used is given before dirty is set", ZEROED, || purged(UsedGivenBeforeDirty));
    refute("granules: the purger takes nothing", RACE, || purged(PurgerTakesNothing));
    refute("granules: the purger clears dirty late", ZEROED, || purged(PurgerClearsDirtyLate));
    refute("granules: the purger gives too much", RACE, || purged_twice(PurgerGivesWhatItDidNotTake));
    refute("granules: no rollback", "a granule is lost", || runs::<3, 3>(RollbackForgets));
    refute("granules: no rollback across", "a granule is lost", || runs::<2, 1>(RollbackForgets));
    refute("granules: rollback of what was not taken", ZEROED, || runs::<3, 3>(RollbackGivesTooMuch));
    refute("granules: rollback across of what was not taken", ZEROED, || runs::<2, 1>(RollbackGivesTooMuch));
}
