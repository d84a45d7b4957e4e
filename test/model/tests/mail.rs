//! Strangers' frees and their mail (src/heap/mail.c, src/slab/slab.c).
//!
//! A slab has one word of blocks here. `rows` stands for the memory of its two rows of bits, which goes
//! back with the slab; the header's other fields are type-stable and stay.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    WordsBeforeMailed,
    NextAfterMailed,
    StrangerLooksAgain,
    ReleaseWaitsForMail,
    ReleaseWaitsForMailButIgnoresEmpty,
    StrangerOrsRelaxed,
    CollectorSwapsRelaxed,
    NotifiersDoNotMark,
    MailedReadWithoutOrder,
    CutWithoutCheck,
    CutChecksWithPlainLoad,
    CutChecksBeforeOwner,
    MailedClearedBeforeLiveTest,
    NoAbortOnBoth,
    NoForward,
    PushRelaxed,
}
use Mutant::*;

/// How a cutter orders its store of `owner` before its test of `mailed`.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Rmw,
    Fence,
}

const HEAPS: usize = 2;
const A: usize = 0;
const B: usize = 1;

struct Slab {
    live: AtomicBool,
    owner: AtomicUsize,
    mailed: AtomicUsize,
    mail_next: AtomicUsize,
    bits: AtomicUsize,
    remote: AtomicUsize,
    rows: UnsafeCell<()>,
    out: UnsafeCell<usize>,
    blocks: [UnsafeCell<u8>; 2],
    /// The granule is the slab's: what the chunk's word says.
    granule_used: AtomicBool,
}

struct World {
    slabs: Vec<Slab>,
    /// 0, or a slab's index + 1.
    mailbox: [AtomicUsize; HEAPS],
    double_free_count: AtomicUsize,
    mutant: Mutant,
    cut: Cut,
}

impl World {
    /// Slabs of heap A, each with the blocks of `out` handed out.
    fn new(slab_count: usize, out: usize, mutant: Mutant, cut: Cut) -> Arc<World> {
        let slab = || Slab {
            live: AtomicBool::new(true),
            owner: AtomicUsize::new(A),
            mailed: AtomicUsize::new(0),
            mail_next: AtomicUsize::new(0),
            bits: AtomicUsize::new(!out & 3),
            remote: AtomicUsize::new(0),
            rows: UnsafeCell::new(()),
            out: UnsafeCell::new(out.count_ones() as usize),
            blocks: [UnsafeCell::new(0), UnsafeCell::new(0)],
            granule_used: AtomicBool::new(true),
        };
        Arc::new(World {
            slabs: (0..slab_count).map(|_| slab()).collect(),
            mailbox: [AtomicUsize::new(0), AtomicUsize::new(0)],
            double_free_count: AtomicUsize::new(0),
            mutant,
            cut,
        })
    }

    fn double_free(&self) {
        self.double_free_count.fetch_add(1, Relaxed);
    }

    fn use_block(&self, s: usize, block: usize) {
        self.slabs[s].blocks[block].with_mut(|p| unsafe { *p += 1 });
    }

    // ---- strangers

    fn push(&self, s: usize, heap: usize) {
        let order = if self.mutant == PushRelaxed { Relaxed } else { Release };
        let mut head = self.mailbox[heap].load(Relaxed);
        loop {
            self.slabs[s].mail_next.store(head, Relaxed);
            match self.mailbox[heap].compare_exchange(head, s + 1, order, Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    fn stranger_free(&self, s: usize, mask: usize) {
        let slab = &self.slabs[s];
        slab.rows.with(|_| ());
        if slab.bits.load(Relaxed) & mask != 0 {
            return self.double_free();
        }
        let order = if self.mutant == StrangerOrsRelaxed { Relaxed } else { AcqRel };
        let old = slab.remote.fetch_or(mask, order);
        if old & mask != 0 {
            return self.double_free();
        }
        if self.mutant == StrangerLooksAgain {
            slab.rows.with(|_| ());
        }
        if self.mutant == NotifiersDoNotMark {
            return self.push(s, slab.owner.load(Relaxed));
        }
        if old != 0 {
            return;
        }
        // In C both are seq_cst: the OR and this load here, the exchange of `mailed` and the load of the word there.
        if self.mutant != MailedReadWithoutOrder {
            fence(SeqCst);
        }
        if slab.mailed.load(Relaxed) == 1 {
            return;
        }
        if slab.mailed.swap(1, AcqRel) == 0 {
            if self.cut == Cut::Fence {
                fence(SeqCst);
            }
            self.push(s, slab.owner.load(Relaxed));
        }
    }

    // ---- owner

    fn owner_free(&self, s: usize, mask: usize) {
        let slab = &self.slabs[s];
        let bits = slab.bits.load(Relaxed);
        if bits & mask != 0 {
            return self.double_free();
        }
        slab.bits.store(bits | mask, Release);
        slab.out.with_mut(|p| unsafe { *p -= 1 });
        self.release_if_empty(s);
    }

    fn release_if_empty(&self, s: usize) {
        let slab = &self.slabs[s];
        let out = slab.out.with(|p| unsafe { *p });
        let waits = matches!(self.mutant, ReleaseWaitsForMail | ReleaseWaitsForMailButIgnoresEmpty);
        if out == 0 && !(waits && slab.mailed.load(Acquire) != 0) {
            slab.rows.with_mut(|_| ());
            slab.live.store(false, Relaxed);
            slab.granule_used.store(false, Release);
        }
    }

    fn collect_words(&self, s: usize) -> usize {
        let slab = &self.slabs[s];
        if slab.remote.load(Relaxed) == 0 {
            return 0;
        }
        let order = if self.mutant == CollectorSwapsRelaxed { Relaxed } else { AcqRel };
        let mut remote = slab.remote.swap(0, order);
        let bits = slab.bits.load(Relaxed);
        if bits & remote != 0 && self.mutant != NoAbortOnBoth {
            self.double_free();
            remote &= !bits; // the C code aborts; the model goes on
        }
        slab.bits.store(bits | remote, Release);
        let n = remote.count_ones() as usize;
        slab.out.with_mut(|p| unsafe {
            assert!(n <= *p, "a block is counted twice");
            *p -= n
        });
        for block in 0..2 {
            if remote & (1 << block) != 0 {
                self.use_block(s, block); // free: its next user may be the owner
            }
        }
        n
    }

    /// The owner looks into its current slab without mail.
    fn visit_current(&self, s: usize) {
        if self.collect_words(s) != 0 {
            self.release_if_empty(s);
        }
    }

    fn visit_mail(&self, heap: usize) {
        if self.mailbox[heap].load(Relaxed) == 0 {
            return;
        }
        let mut link = self.mailbox[heap].swap(0, Acquire);
        let mut steps = 0;
        while link != 0 {
            steps += 1;
            assert!(steps < 8, "the mailbox is a ring");
            let s = link - 1;
            let slab = &self.slabs[s];
            let next = slab.mail_next.load(Relaxed);
            self.mail_one(heap, s);
            link = if self.mutant == NextAfterMailed { slab.mail_next.load(Relaxed) } else { next };
        }
    }

    fn mail_one(&self, heap: usize, s: usize) {
        let slab = &self.slabs[s];
        let owner = slab.owner.load(Relaxed);
        if owner != heap && self.mutant != NoForward {
            return self.push(s, owner); // mailed stays 1
        }
        if self.mutant == MailedClearedBeforeLiveTest {
            slab.mailed.swap(0, AcqRel);
        }
        // While mailed is 1, nobody cuts here: what is live is this heap's.
        if !slab.live.load(Relaxed) {
            slab.mailed.swap(0, AcqRel);
            return;
        }
        assert!(owner == heap, "collected another heap's slab");
        slab.rows.with(|_| ());
        if self.mutant == WordsBeforeMailed {
            self.collect_words(s);
            slab.mailed.swap(0, AcqRel);
            return self.release_if_empty(s);
        }
        slab.mailed.swap(0, AcqRel);
        if self.mutant != MailedReadWithoutOrder {
            fence(SeqCst);
        }
        let n = self.collect_words(s);
        if n != 0 || self.mutant == ReleaseWaitsForMail {
            self.release_if_empty(s);
        }
    }

    /// Cut slab 0 anew for `heap`, if its granule is free; all blocks of `out` are handed out at once.
    fn cut(&self, heap: usize, out: usize) -> bool {
        let slab = &self.slabs[0];
        if slab.granule_used.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return false;
        }
        let mailed = match self.mutant {
            CutWithoutCheck => {
                slab.owner.store(heap, Relaxed);
                0
            }
            CutChecksWithPlainLoad => {
                slab.owner.store(heap, Release);
                slab.mailed.load(Acquire)
            }
            CutChecksBeforeOwner => {
                let mailed = slab.mailed.fetch_or(0, AcqRel);
                slab.owner.store(heap, Relaxed);
                mailed
            }
            _ if self.cut == Cut::Fence => {
                slab.owner.store(heap, Relaxed);
                fence(SeqCst);
                slab.mailed.load(Relaxed)
            }
            _ => {
                slab.owner.store(heap, Relaxed);
                slab.mailed.fetch_or(0, AcqRel)
            }
        };
        if mailed != 0 {
            slab.granule_used.store(false, Release);
            return false;
        }
        slab.rows.with_mut(|_| ());
        slab.remote.store(0, Relaxed);
        slab.bits.store(!out & 3, Relaxed);
        slab.out.with_mut(|p| unsafe { *p = out.count_ones() as usize });
        slab.live.store(true, Release);
        true
    }
}

/// Two strangers free the last two blocks of a slab while its owner visits; one more visit afterwards.
fn last_blocks(mutant: Mutant) {
    let world = World::new(1, 3, mutant, Cut::Rmw);
    let strangers: Vec<_> = (0..2)
        .map(|block| {
            let world = world.clone();
            thread::spawn(move || {
                world.use_block(0, block);
                world.stranger_free(0, 1 << block);
            })
        })
        .collect();
    world.visit_current(0);
    world.visit_mail(A);
    for stranger in strangers {
        stranger.join().unwrap();
    }
    world.visit_mail(A);
    assert_eq!(world.double_free_count.load(Relaxed), 0, "an honest free was called a double free");
    let slab = &world.slabs[0];
    assert_eq!(slab.remote.load(Relaxed), 0, "a free is lost in the strangers' row");
    assert_eq!(slab.bits.load(Relaxed), 3, "a free is lost");
    assert_eq!(slab.out.with(|p| unsafe { *p }), 0, "a free is not counted");
    assert_eq!(slab.mailed.load(Relaxed), 0, "the slab says mailed and is in no mailbox");
    assert!(!slab.live.load(Relaxed), "an empty slab is never released");
    assert_eq!(world.mailbox[A].load(Relaxed), 0);
}

/// Two slabs, each with a stranger that frees twice; the mailbox is taken while it grows.
fn two_slabs(mutant: Mutant) {
    let world = World::new(2, 3, mutant, Cut::Rmw);
    let strangers: Vec<_> = (0..2)
        .map(|s| {
            let world = world.clone();
            thread::spawn(move || {
                world.stranger_free(s, 1);
                world.stranger_free(s, 2);
            })
        })
        .collect();
    world.visit_mail(A);
    for stranger in strangers {
        stranger.join().unwrap();
    }
    world.visit_mail(A);
    for slab in &world.slabs {
        assert_eq!(slab.remote.load(Relaxed), 0, "a free is lost in the strangers' row");
        assert!(!slab.live.load(Relaxed), "an empty slab is never released");
    }
}

/// A stranger frees the last block of A's slab; A releases it, B cuts it anew at the same header and hands
/// a block to a stranger, who frees it. B must find that free although A need not visit again.
fn cut_anew(mutant: Mutant, cut: Cut) {
    let world = World::new(1, 1, mutant, cut);
    let stranger = {
        let world = world.clone();
        thread::spawn(move || world.stranger_free(0, 1))
    };
    let other = {
        let world = world.clone();
        thread::spawn(move || {
            let is_cut = world.cut(B, 1);
            if is_cut {
                world.use_block(0, 0);
                world.stranger_free(0, 1); // by a thread that got the block from B
            }
            is_cut
        })
    };
    world.visit_current(0);
    world.visit_mail(A);
    let is_cut = other.join().unwrap();
    stranger.join().unwrap();
    if !is_cut {
        world.visit_mail(A);
    }
    world.visit_mail(B);
    let slab = &world.slabs[0];
    assert_eq!(slab.remote.load(Relaxed), 0, "the owner never hears of a free");
    assert!(!slab.live.load(Relaxed), "an empty slab is never released");
    assert_eq!(slab.mailed.load(Relaxed), 0, "the slab says mailed and is in no mailbox");
    assert!(!slab.granule_used.load(Relaxed), "a granule is lost");
}

/// A releases its slab and cuts it anew itself, while the notifier of the first life is on its way.
fn cut_anew_by_its_heap(mutant: Mutant) {
    let world = World::new(1, 1, mutant, Cut::Rmw);
    let spawn_stranger = || {
        let world = world.clone();
        thread::spawn(move || world.stranger_free(0, 1))
    };
    let mut strangers = vec![spawn_stranger()];
    world.visit_current(0);
    if world.cut(A, 1) {
        strangers.push(spawn_stranger());
    }
    world.visit_mail(A);
    for stranger in strangers {
        stranger.join().unwrap();
    }
    world.visit_mail(A);
    let slab = &world.slabs[0];
    assert_eq!(slab.remote.load(Relaxed), 0, "the owner never hears of a free");
    assert!(!slab.live.load(Relaxed), "an empty slab is never released");
    assert_eq!(slab.mailed.load(Relaxed), 0, "the slab says mailed and is in no mailbox");
}

/// The slab belongs to heap A, which is dead; heap B takes the slab while a stranger's free is on its way.
/// Whoever holds A exclusively (state 0 -> 1) reads its mail.
fn slab_of_a_dead_heap(mutant: Mutant) {
    let world = World::new(1, 3, mutant, Cut::Rmw);
    let busy = Arc::new(AtomicUsize::new(0));
    let strangers = {
        let world = world.clone();
        thread::spawn(move || world.stranger_free(0, 1))
    };
    let taker = {
        let (world, busy) = (world.clone(), busy.clone());
        thread::spawn(move || {
            if busy.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
                return;
            }
            world.slabs[0].owner.store(B, Relaxed);
            busy.store(0, Release);
            world.owner_free(0, 2);
            world.visit_mail(B);
        })
    };
    if busy.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
        world.visit_mail(A);
        busy.store(0, Release);
    }
    strangers.join().unwrap();
    taker.join().unwrap();
    world.visit_mail(A);
    world.visit_mail(B);
    let slab = &world.slabs[0];
    assert_eq!(slab.remote.load(Relaxed), 0, "the owner never hears of a free");
    let out = slab.out.with(|p| unsafe { *p });
    assert_eq!(!slab.live.load(Relaxed), out == 0, "an empty slab is never released");
    assert_eq!(slab.mailed.load(Relaxed), 0, "the slab says mailed and is in no mailbox");
}

/// Block 0 is freed by a stranger and by `other`, block 1 keeps the slab alive: somebody notices.
fn freed_twice(mutant: Mutant, by_owner: bool) {
    let world = World::new(1, 3, mutant, Cut::Rmw);
    let strangers: Vec<_> = (0..if by_owner { 1 } else { 2 })
        .map(|_| {
            let world = world.clone();
            thread::spawn(move || world.stranger_free(0, 1))
        })
        .collect();
    if by_owner {
        world.owner_free(0, 1);
    }
    world.visit_mail(A);
    world.visit_current(0);
    for stranger in strangers {
        stranger.join().unwrap();
    }
    world.visit_mail(A);
    assert_eq!(world.double_free_count.load(Relaxed), 1, "a double free is not found exactly once");
    assert_eq!(world.slabs[0].out.with(|p| unsafe { *p }), 1, "a block is counted twice");
}

#[test]
fn no_free_is_lost_and_the_empty_slab_is_released() {
    prove("mail: last blocks", None, || last_blocks(Right));
}

#[test]
fn a_mailbox_is_taken_while_it_grows() {
    prove("mail: two slabs", Some(3), || two_slabs(Right));
}

#[test]
fn a_header_is_cut_anew_by_another_heap() {
    prove("mail: cut anew, exchange", None, || cut_anew(Right, Cut::Rmw));
    prove("mail: cut anew, fences", None, || cut_anew(Right, Cut::Fence));
}

#[test]
fn a_header_is_cut_anew_by_its_own_heap() {
    prove("mail: cut anew by its heap", None, || cut_anew_by_its_heap(Right));
    prove("mail: cut anew by its heap, no check", None, || cut_anew_by_its_heap(CutWithoutCheck));
}

#[test]
fn a_release_may_wait_for_mail_as_well() {
    let wait = ReleaseWaitsForMail;
    prove("mail: release waits, last blocks", None, move || last_blocks(wait));
    prove("mail: release waits, cut anew", None, move || cut_anew(wait, Cut::Rmw));
    prove("mail: release waits, cut anew by its heap", None, move || cut_anew_by_its_heap(wait));
    prove("mail: release waits, a dead heap's slab", None, move || slab_of_a_dead_heap(wait));
}

#[test]
fn a_double_free_is_found_by_one_of_the_two() {
    prove("mail: two strangers free one block", None, || freed_twice(Right, false));
    prove("mail: a stranger and the owner free one block", None, || freed_twice(Right, true));
}

#[test]
fn a_dead_heaps_slab_moves_to_another_heap() {
    prove("mail: a dead heap's slab", None, || slab_of_a_dead_heap(Right));
}

#[test]
fn mutants_are_refuted() {
    refute("mail: words before mailed", "lost", || last_blocks(WordsBeforeMailed));
    refute("mail: a stranger looks again after its OR", RACE, || last_blocks(StrangerLooksAgain));
    refute("mail: waiting release ignores empty mail", "never released", || {
        last_blocks(ReleaseWaitsForMailButIgnoresEmpty)
    });
    refute("mail: the stranger's OR is relaxed", RACE, || last_blocks(StrangerOrsRelaxed));
    refute("mail: the collector's exchange is relaxed", RACE, || last_blocks(CollectorSwapsRelaxed));
    refute("mail: every stranger pushes", "the mailbox is a ring", || last_blocks(NotifiersDoNotMark));
    refute("mail: mailed is read without order", "lost", || last_blocks(MailedReadWithoutOrder));
    refute("mail: next is read late", "lost", || two_slabs(NextAfterMailed));
    refute("mail: the push is relaxed", "lost", || two_slabs(PushRelaxed));
    refute("mail: cut without a check", "never hears", || cut_anew(CutWithoutCheck, Cut::Rmw));
    refute("mail: the cutter's check is a load", "never hears", || {
        cut_anew(CutChecksWithPlainLoad, Cut::Rmw)
    });
    refute("mail: checked before owner is stored", "never hears", || {
        cut_anew(CutChecksBeforeOwner, Cut::Rmw)
    });
    refute("mail: mailed cleared before the live test", RACE, || {
        cut_anew(MailedClearedBeforeLiveTest, Cut::Rmw)
    });
    refute("mail: not forwarded", "another heap's", || slab_of_a_dead_heap(NoForward));
    refute("mail: no abort on bits & remote", "exactly once", || freed_twice(NoAbortOnBoth, false));
}
