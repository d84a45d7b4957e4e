//! Strangers tell a heap's owner of blocks by their addresses (src/heap/letters.c).
//!
//! A heap has one line here, of two places. `letters` is the line's bit. That the operations are seq_cst in C is a fence
//! here wherever the protocol needs it.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    ReadsFromTheLast,
    FirstSeenEmpty,
    LooksOnce,
    LooksAgainWithoutOrder,
    ReadsWithoutOrder,
    BitBeforeBlock,
    PutsRelaxed,
    TakesByStore,
}
use Mutant::*;

const LOST: &str = "a block was lost";
const TWICE: &str = "a block was taken twice";

struct World {
    place: [AtomicUsize; 2],
    letters: AtomicUsize,
    blocks: [UnsafeCell<u8>; 3],
    taken: [AtomicUsize; 3],
    mutant: Mutant,
}

impl World {
    fn new(mutant: Mutant) -> Arc<World> {
        Arc::new(World {
            place: [AtomicUsize::new(0), AtomicUsize::new(0)],
            letters: AtomicUsize::new(0),
            blocks: [UnsafeCell::new(0), UnsafeCell::new(0), UnsafeCell::new(0)],
            taken: [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)],
            mutant,
        })
    }

    fn use_block(&self, block: usize) {
        self.blocks[block].with_mut(|p| unsafe { *p += 1 });
    }

    /// False: the line is full.
    fn put(&self, block: usize) -> bool {
        self.use_block(block); // the program's last write
        let order = if self.mutant == PutsRelaxed { Relaxed } else { AcqRel };
        let mut first = if self.mutant == FirstSeenEmpty { self.place[0].load(Relaxed) } else { 0 };
        for i in 0..2 {
            let mut seen = self.place[i].load(Relaxed);
            if self.mutant == BitBeforeBlock {
                self.letters.fetch_or(1, AcqRel);
            }
            if seen == 0 {
                seen = self.place[i].compare_exchange(0, block + 1, order, Relaxed).unwrap_or_else(|other| other);
            }
            if seen != 0 {
                if i == 0 && self.mutant != FirstSeenEmpty {
                    first = seen;
                }
                continue;
            }
            if self.mutant != LooksAgainWithoutOrder {
                fence(SeqCst);
            }
            let is_alone = match self.mutant {
                LooksOnce => i == 0,
                BitBeforeBlock => false,
                _ => i == 0 || self.place[0].load(Relaxed) != first,
            };
            if is_alone {
                self.letters.fetch_or(1, AcqRel);
            }
            return true;
        }
        false
    }

    fn take(&self, i: usize) {
        if self.place[i].load(Relaxed) == 0 {
            return;
        }
        let seen = if self.mutant == TakesByStore {
            let seen = self.place[i].load(Acquire);
            self.place[i].store(0, Release);
            seen
        } else {
            self.place[i].swap(0, AcqRel)
        };
        if seen != 0 {
            assert_eq!(self.taken[seen - 1].fetch_add(1, Relaxed), 0, "{TWICE}");
            self.use_block(seen - 1); // free: its next user may be this thread
        }
    }

    fn take_all(&self) {
        for n in 0..2 {
            self.take(if self.mutant == ReadsFromTheLast { 1 - n } else { n });
            if self.mutant != ReadsWithoutOrder {
                fence(SeqCst);
            }
        }
    }

    /// The owner.
    fn read(&self) {
        if self.letters.swap(0, AcqRel) != 0 {
            fence(SeqCst);
            self.take_all();
        }
    }
}

/// `told` strangers put a block each, beside one that lies there already where `begun`; the owner reads once meanwhile and once at
/// the end, and a fourth thread takes what it finds, bit or not, where there is one.
fn told(mutant: Mutant, strangers: usize, begun: bool, forwards: bool) {
    let world = World::new(mutant);
    let mut put = vec![false; 3];
    if begun {
        put[2] = world.put(2);
    }
    let threads: Vec<_> = (0..strangers)
        .map(|block| {
            let world = world.clone();
            thread::spawn(move || world.put(block))
        })
        .collect();
    let forwarder = forwards.then(|| {
        let world = world.clone();
        thread::spawn(move || world.take_all())
    });
    world.read();
    for (block, thread) in threads.into_iter().enumerate() {
        put[block] = thread.join().unwrap();
    }
    if let Some(thread) = forwarder {
        thread.join().unwrap();
    }
    world.read();
    for (block, put) in put.into_iter().enumerate() {
        assert_eq!(world.taken[block].load(Relaxed), usize::from(put), "{LOST}");
    }
}

#[test]
fn every_block_is_read_once() {
    prove("two strangers tell, the owner reads", Some(3), || told(Right, 2, false, false));
    prove("one stranger tells, of a line that is begun", None, || told(Right, 1, true, false));
    prove("two strangers tell, of a line that is begun", Some(3), || told(Right, 2, true, false));
    prove("another thread takes some away", Some(3), || told(Right, 1, true, true));
}

#[test]
fn weakened_letters_lose_or_double_blocks() {
    for (mutant, reason) in [
        (ReadsFromTheLast, LOST),
        (LooksOnce, LOST),
        (LooksAgainWithoutOrder, LOST),
        (ReadsWithoutOrder, LOST),
        (BitBeforeBlock, LOST),
        (PutsRelaxed, RACE),
    ] {
        refute(&format!("{mutant:?}"), reason, move || told(mutant, 1, mutant != BitBeforeBlock, false));
    }
    refute(&format!("{FirstSeenEmpty:?}"), LOST, || told(FirstSeenEmpty, 2, false, false));
    refute(&format!("{TakesByStore:?}"), TWICE, || told(TakesByStore, 0, true, true));
}
