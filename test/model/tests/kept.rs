//! Spans that a thread keeps for its next large block, and that others may give back (src/heap/kept.h).
//!
//! First the list: its thread and a thief, of whom only the thief has a barrier (membarrier). The kernel's barrier is a
//! fence in every thread between the thief's two steps; here each of the two has a fence where the kernel's may
//! fall, which is the same for what they can see.
//! Then the block: its own thread frees it without an atomic operation, others by CAS; and a program that frees it twice.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    NoBarrier,
    OwnerDoesNotLook,
    ThiefDoesNotLook,
    LeaveRelaxed,
    ThiefLeavesRelaxed,
    GiveRelaxed,
    TakeUnseen,
}
use Mutant::*;

struct List {
    used: AtomicBool,
    busy: AtomicBool,
    thief: AtomicBool,
    count: UnsafeCell<usize>, // of the heap's kept spans: 0 or the one
    memory: UnsafeCell<usize>,
    mutant: Mutant,
}

impl List {
    fn new(mutant: Mutant) -> Arc<List> {
        Arc::new(List {
            used: AtomicBool::new(true),
            busy: AtomicBool::new(false),
            thief: AtomicBool::new(false),
            count: UnsafeCell::new(0),
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

    fn barrier(&self) {
        if self.mutant != NoBarrier {
            fence(SeqCst);
        }
    }

    fn write(&self) {
        self.memory.with_mut(|p| unsafe { *p += 1 });
    }

    /// hak_kept_enter
    fn enter(&self) -> bool {
        self.busy.store(true, Relaxed);
        self.barrier();
        if !self.thief.load(Acquire) || self.mutant == OwnerDoesNotLook {
            return true;
        }
        self.leave();
        false
    }

    fn leave(&self) {
        self.busy.store(false, self.unless(LeaveRelaxed, Release));
    }

    /// hak_kept_give; false: the span is the caller's still.
    fn keep(&self) -> bool {
        if !self.enter() {
            return false;
        }
        self.count.with_mut(|p| unsafe { *p = 1 });
        self.leave();
        true
    }

    /// hak_kept_take
    fn again(&self) -> bool {
        if !self.enter() {
            return false;
        }
        let had = self.count.with_mut(|p| unsafe { std::mem::replace(&mut *p, 0) });
        self.leave();
        had == 1
    }

    /// hak_span_give
    fn give(&self) {
        self.used.store(false, self.unless(GiveRelaxed, Release));
    }

    /// hak_kept_steal
    fn steal(&self) {
        if self.thief.compare_exchange(false, true, AcqRel, Relaxed).is_err() {
            return;
        }
        self.barrier();
        if !self.busy.load(Acquire) || self.mutant == ThiefDoesNotLook {
            let had = self.count.with_mut(|p| unsafe { std::mem::replace(&mut *p, 0) });
            if had == 1 {
                self.write(); // it may return its pages
                self.give();
            }
        }
        self.thief.store(false, self.unless(ThiefLeavesRelaxed, Release));
    }
}

/// The owner keeps, takes again and gives back; one thread steals; another takes what came free.
fn list(mutant: Mutant) {
    let list = List::new(mutant);
    let (one, two) = (list.clone(), list.clone());
    let threads = [
        thread::spawn(move || one.steal()),
        thread::spawn(move || {
            if two.used.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                two.write();
            }
        }),
    ];
    list.write();
    if !list.keep() {
        list.give();
    } else if list.again() {
        list.write();
        list.give();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let kept = list.count.with(|p| unsafe { *p });
    assert!(list.used.load(Relaxed) || kept == 0, "kept and free at once");
}

/// The same thread keeps it a second time after a thief was there.
fn list_again(mutant: Mutant) {
    let list = List::new(mutant);
    let other = list.clone();
    let thief = thread::spawn(move || other.steal());
    for _ in 0..2 {
        if !list.keep() {
            break;
        }
        if !list.again() {
            break;
        }
        list.write();
    }
    thief.join().unwrap();
}

#[test]
fn a_list_has_its_thread_or_a_thief() {
    prove("kept: owner, thief, the next owner", Some(3), || list(Right));
    prove("kept: kept and taken again under a thief", Some(4), || list_again(Right));
}

#[test]
fn mutants_of_the_list_are_refuted() {
    refute("kept: no barrier", RACE, || list(NoBarrier));
    refute("kept: the owner does not look for a thief", RACE, || list(OwnerDoesNotLook));
    refute("kept: the thief does not look for the owner", RACE, || list(ThiefDoesNotLook));
    refute("kept: the owner leaves relaxed", RACE, || list(LeaveRelaxed));
    refute("kept: the thief leaves relaxed", RACE, || list_again(ThiefLeavesRelaxed));
    refute("kept: the span is given back relaxed", RACE, || list(GiveRelaxed));
}

const LIVE: usize = 100;
const KEPT: usize = 10;

/// One block's record. `words`: the name of the heap whose own it is, and KEPT.
struct Block {
    owner: AtomicUsize,
    words: AtomicUsize,
    memory: UnsafeCell<usize>,
    passed: AtomicBool,
    found: AtomicBool,
    mutant: Mutant,
}

impl Block {
    /// A live block of the heap with this name.
    fn new(name: usize, mutant: Mutant) -> Arc<Block> {
        Arc::new(Block {
            owner: AtomicUsize::new(LIVE),
            words: AtomicUsize::new(name),
            memory: UnsafeCell::new(0),
            passed: AtomicBool::new(false),
            found: AtomicBool::new(false),
            mutant,
        })
    }

    fn find(&self) {
        self.found.store(true, Relaxed);
    }

    /// free() by the thread of heap `me`, which keeps it then; false: it was found to be free.
    fn free(&self, me: usize) -> bool {
        if self.owner.load(Acquire) != LIVE {
            self.find();
            return false;
        }
        if self.words.load(Relaxed) == me {
            self.owner.store(0, Release);
        } else if self.owner.compare_exchange(LIVE, 0, AcqRel, Acquire).is_err() {
            self.find();
            return false;
        }
        if self.words.load(Relaxed) >= KEPT {
            self.find();
            return false;
        }
        self.words.store(me + KEPT, Relaxed);
        true
    }

    /// malloc() by the thread of heap `me`, in whose list it is.
    fn again(&self, me: usize) -> bool {
        if self.words.load(Relaxed) != me + KEPT && self.mutant != TakeUnseen {
            self.find();
            return false;
        }
        self.words.store(me, Relaxed);
        self.owner.store(LIVE, Release);
        true
    }

    fn write(&self) {
        self.memory.with_mut(|p| unsafe { *p += 1 });
    }
}

/// A right program: heap 1's block goes to a thread of heap 2, which frees it, gets it again and hands it back.
fn handed_on(mutant: Mutant) {
    let block = Block::new(1, mutant);
    block.write();
    let other = block.clone();
    let thread = thread::spawn(move || {
        other.write();
        assert!(other.free(2) && other.again(2));
        other.write();
        other.passed.store(true, Release);
    });
    if block.passed.load(Acquire) {
        block.write();
        assert!(block.free(1) && block.again(1));
        assert!(block.free(1) && block.again(1), "its own by now");
    }
    thread.join().unwrap();
    assert!(!block.found.load(Relaxed), "a right program was accused");
}

/// A wrong one: heap 1's thread and another free the block at once; each would have it again.
fn freed_twice(mutant: Mutant) {
    let block = Block::new(1, mutant);
    let other = block.clone();
    let thread = thread::spawn(move || other.free(2) && other.again(2) && other.free(2));
    let mine = block.free(1) && block.again(1) && block.free(1);
    let others = thread.join().unwrap();
    // what both still take for theirs is looked at when it is wanted
    if mine && others && block.again(1) {
        block.again(2);
    }
    assert!(block.found.load(Relaxed), "freed twice, and nobody saw it");
}

#[test]
fn a_block_is_freed_once() {
    prove("kept: a block that goes from thread to thread", None, || handed_on(Right));
    prove("kept: a block that two threads free", Some(4), || freed_twice(Right));
}

#[test]
fn mutants_of_the_free_are_refuted() {
    refute("kept: nobody looks whether it is still kept", "nobody saw it", || freed_twice(TakeUnseen));
}
