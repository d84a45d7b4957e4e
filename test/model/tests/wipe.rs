//! An empty chunk's headers become zeros (src/slab/slab.c, hak_slab_chunk_empty), under late notifiers, readers of
//! mail, third threads and who cuts there next; mailboxes carry the fork epoch (src/heap/mail.c).
//!
//! The kernel zeroes a page at once. Here it takes several stores, `mailed` and `claim` last: who reads the
//! other fields came by one of these two. `boxed` is no field of the code; it says that the header is in a box.
//! Stores of 0 to `mailed` are exchanges here: loom would let an exchange that came before such a store win.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    NoSecondLook,
    NoExchange,
    ChecksByLoad,
    WiperTakesNoGranules,
    WiperTakesNoClaim,
    RestoresTheMailedOne,
    NoRestore,
    PushesToNull,
    NullStaysMailed,
    CutWithoutCheck,
    CutChecksWithPlainLoad,
    PushIgnoresTag,
    TakeIgnoresTag,
}
use Mutant::*;

/// What orders a store before a load in place of seq_cst: exchanges, or fences.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Rmw,
    Fence,
}
use Order::*;

// Heaps; 0 is NULL.
const A: usize = 1;
const B: usize = 2;

// Epochs: values of `mailed` and `claim`, tags of mailboxes.
const PARENT: usize = 1;
const NOW: usize = 2;

/// The chunk's headers; what follows them is in a chunk that stays in use.
const CHUNK: usize = 2;

struct Header {
    owner: AtomicUsize,
    mailed: AtomicUsize,
    mail_next: AtomicUsize,
    claim: AtomicUsize,
    /// A slab is here: the owner's plain field.
    place: UnsafeCell<bool>,
    /// A slab is here: the chunk's bit.
    live: AtomicBool,
    /// `returned` and the like: who holds the claim writes them.
    claimed_fields: UnsafeCell<usize>,
    remote: AtomicUsize,
    boxed: UnsafeCell<bool>,
}

struct World {
    headers: Vec<Header>,
    /// Bits of the chunk's granules.
    used: AtomicUsize,
    /// A header's index + 1 or 0, times 4, and the tag.
    mailbox: [AtomicUsize; 3],
    mutant: Mutant,
    order: Order,
}

impl World {
    /// The chunk's slabs, `ended` of them, were heap A's and have ended; one more of A's lives in another chunk.
    fn new(ended: usize, mutant: Mutant, order: Order) -> World {
        assert!(ended <= CHUNK);
        let header = |i| Header {
            owner: AtomicUsize::new(A),
            mailed: AtomicUsize::new(0),
            mail_next: AtomicUsize::new(0),
            claim: AtomicUsize::new(0),
            place: UnsafeCell::new(i >= ended),
            live: AtomicBool::new(i >= ended),
            claimed_fields: UnsafeCell::new(0),
            remote: AtomicUsize::new(0),
            boxed: UnsafeCell::new(false),
        };
        World {
            headers: (0..ended + 1).map(header).collect(),
            used: AtomicUsize::new(0),
            mailbox: [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)],
            mutant,
            order,
        }
    }

    fn chunk_count(&self) -> usize {
        self.headers.len() - 1
    }

    fn fence(&self) {
        if self.order == Fence {
            fence(SeqCst);
        }
    }

    // ---- strangers

    fn push(&self, s: usize, heap: usize) {
        let header = &self.headers[s];
        assert!(heap != 0, "mail for NULL");
        header.boxed.with_mut(|p| unsafe {
            assert!(!*p, "in two mailboxes");
            *p = true
        });
        let mut head = self.mailbox[heap].load(Relaxed);
        loop {
            let is_ours = head % 4 == NOW || self.mutant == PushIgnoresTag;
            header.mail_next.store(if is_ours { head / 4 } else { 0 }, Relaxed);
            match self.mailbox[heap].compare_exchange(head, (s + 1) * 4 + NOW, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    fn notify(&self, s: usize) {
        let header = &self.headers[s];
        fence(SeqCst);
        if header.mailed.load(Relaxed) == NOW {
            return;
        }
        loop {
            if header.mailed.swap(NOW, AcqRel) == NOW {
                return;
            }
            self.fence();
            let owner = header.owner.load(Relaxed);
            if owner != 0 || self.mutant == PushesToNull {
                return self.push(s, owner);
            }
            if self.mutant == NullStaysMailed {
                return;
            }
            header.mailed.swap(0, if self.order == Rmw { AcqRel } else { Relaxed });
            self.fence();
            if self.mutant == NoSecondLook || header.owner.load(Relaxed) == 0 {
                return;
            }
        }
    }

    fn stranger_free(&self, s: usize) {
        if self.headers[s].remote.fetch_or(1, AcqRel) == 0 {
            self.notify(s);
        }
    }

    // ---- a heap's owner

    fn mail_take(&self, heap: usize) {
        let head = self.mailbox[heap].swap(0, AcqRel);
        if head % 4 != NOW && self.mutant != TakeIgnoresTag {
            return;
        }
        let mut link = head / 4;
        while link != 0 {
            let header = &self.headers[link - 1];
            let next = header.mail_next.load(Relaxed);
            header.boxed.with_mut(|p| unsafe {
                assert!(*p, "mail that nobody sent");
                *p = false
            });
            let owner = header.owner.load(Relaxed);
            if owner != heap {
                self.push(link - 1, owner);
            } else {
                let live = header.place.with(|p| unsafe { *p });
                header.mailed.swap(0, AcqRel);
                fence(SeqCst);
                if live {
                    header.remote.swap(0, AcqRel);
                }
            }
            link = next;
        }
    }

    fn claim(&self, s: usize) -> bool {
        self.headers[s].claim.compare_exchange(0, NOW, Acquire, Relaxed).is_ok()
    }

    fn unclaim(&self, s: usize) {
        self.headers[s].claim.store(0, Release);
    }

    fn cut(&self, s: usize, heap: usize) -> bool {
        let header = &self.headers[s];
        if self.used.fetch_or(1 << s, AcqRel) & 1 << s != 0 {
            return false;
        }
        if !self.claim(s) {
            self.used.fetch_and(!(1 << s), Release);
            return false;
        }
        header.owner.store(heap, Release);
        self.fence();
        let mailed = match (self.mutant, self.order) {
            (CutWithoutCheck, _) => 0,
            (CutChecksWithPlainLoad, _) | (_, Fence) => header.mailed.load(Acquire),
            _ => header.mailed.fetch_or(0, AcqRel),
        };
        if mailed == NOW {
            self.unclaim(s);
            self.used.fetch_and(!(1 << s), Release);
            return false;
        }
        header.place.with_mut(|p| unsafe { *p = true });
        header.claimed_fields.with_mut(|p| unsafe { *p = 0 });
        header.live.store(true, Release);
        self.unclaim(s);
        true
    }

    /// Cuts a slab and hands its block to a stranger, who frees it.
    fn cut_and_free(&self, s: usize, heap: usize) -> bool {
        let is_cut = self.cut(s, heap);
        if is_cut {
            self.stranger_free(s);
        }
        is_cut
    }

    // ---- third threads

    /// One look at `live` lies behind it already.
    fn sweep(&self, s: usize) {
        if !self.claim(s) {
            return;
        }
        if self.headers[s].live.load(Acquire) {
            self.headers[s].claimed_fields.with_mut(|p| unsafe { *p += 1 });
        }
        self.unclaim(s);
    }

    /// The owner takes blocks from its slab.
    fn take(&self, s: usize) {
        if self.claim(s) {
            self.headers[s].claimed_fields.with_mut(|p| unsafe { *p += 1 });
            self.unclaim(s);
        }
    }

    // ---- the wiper

    fn wipe(&self, header: &Header) {
        header.boxed.with(|p| assert!(!unsafe { *p }, "a header in a mailbox is wiped"));
        header.place.with_mut(|p| unsafe { *p = false });
        header.claimed_fields.with_mut(|p| unsafe { *p = 0 });
        header.owner.store(0, Relaxed);
        header.mail_next.store(0, Relaxed);
        header.mailed.swap(0, Release);
        header.claim.store(0, Release);
    }

    /// Whether the header may be wiped: nobody is told of its slab, or will be.
    fn stop(&self, s: usize) -> bool {
        let header = &self.headers[s];
        if self.mutant != WiperTakesNoClaim && !self.claim(s) {
            return false;
        }
        let mailed = match self.mutant {
            NoExchange => 0,
            ChecksByLoad => header.mailed.load(Acquire),
            _ => header.mailed.swap(NOW, AcqRel),
        };
        if mailed == NOW {
            if self.mutant == RestoresTheMailedOne {
                header.mailed.swap(0, Release);
            }
            self.unclaim(s);
        }
        mailed != NOW
    }

    fn chunk_empty(&self) -> bool {
        let all = (1 << self.chunk_count()) - 1;
        let takes = self.mutant != WiperTakesNoGranules;
        if takes && self.used.compare_exchange(0, all, AcqRel, Relaxed).is_err() {
            return false;
        }
        let stopped = (0..self.chunk_count()).take_while(|&s| self.stop(s)).count();
        let is_wiped = stopped == self.chunk_count();
        for s in 0..stopped {
            if is_wiped {
                self.wipe(&self.headers[s]);
            } else if self.mutant != NoRestore {
                self.headers[s].mailed.swap(0, Release);
                self.unclaim(s);
            }
        }
        if takes {
            self.used.fetch_and(0, Release);
        }
        is_wiped
    }

    /// After everybody, and after visits.
    fn check(&self) {
        for header in &self.headers {
            assert_eq!(header.remote.load(Relaxed), 0, "the owner never hears of a free");
            header.boxed.with(|p| assert!(!unsafe { *p }, "mail is lost"));
            assert_ne!(header.mailed.load(Relaxed), NOW, "the slab says mailed and is in no mailbox");
            assert_eq!(header.claim.load(Relaxed), 0, "a claim stays");
        }
        assert_eq!(self.used.load(Relaxed) & !self.live_bits(), 0, "a granule is lost");
    }

    fn live_bits(&self) -> usize {
        (0..self.chunk_count()).map(|s| (self.headers[s].live.load(Relaxed) as usize) << s).sum()
    }
}

fn start<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

/// A late notifier of the ended slab, the wiper, and heap B which cuts there; A need not visit for B to hear.
fn cut_again(mutant: Mutant, order: Order) {
    let world = Arc::new(World::new(1, mutant, order));
    let late = start(&world, |world| world.notify(0));
    let cutter = start(&world, |world| world.cut_and_free(0, B));
    world.chunk_empty();
    world.mail_take(A);
    let is_cut = cutter.join().unwrap();
    late.join().unwrap();
    if !is_cut {
        world.mail_take(A);
    }
    world.mail_take(B);
    world.check();
}

/// The chunk is wiped already: `late` notifiers meet NULL while B cuts, and a stranger frees B's block.
fn after_the_wipe(late: usize, mutant: Mutant, order: Order) {
    let world = Arc::new(World::new(1, mutant, order));
    assert!(world.chunk_empty());
    let late: Vec<_> = (0..late).map(|_| start(&world, |world| world.notify(0))).collect();
    if !world.cut_and_free(0, B) {
        world.cut_and_free(0, B);
    }
    for late in late {
        late.join().unwrap();
    }
    world.mail_take(B);
    world.check();
}

/// A's box holds, or is about to hold, an ended slab's header and one of a slab that lives elsewhere.
fn a_box_with_two(mutant: Mutant) {
    let world = Arc::new(World::new(1, mutant, Rmw));
    let late = start(&world, |world| world.notify(0));
    let stranger = start(&world, |world| world.stranger_free(1));
    let wiper = start(&world, |world| world.chunk_empty());
    world.mail_take(A);
    late.join().unwrap();
    stranger.join().unwrap();
    wiper.join().unwrap();
    world.mail_take(A);
    world.check();
}

/// Two headers: the second one's mail stops the wiper, who restores the first; then B cuts at both.
fn abort(mutant: Mutant) {
    let world = Arc::new(World::new(CHUNK, mutant, Rmw));
    let late = [start(&world, |world| world.notify(0)), start(&world, |world| world.notify(1))];
    let wiper = start(&world, |world| {
        world.chunk_empty();
        world.cut_and_free(0, B);
        world.cut_and_free(1, B);
    });
    for late in late {
        late.join().unwrap();
    }
    wiper.join().unwrap();
    world.mail_take(A);
    world.mail_take(B);
    world.check();
}

/// A third thread is between its two looks at `live`; B cuts there and takes blocks.
fn sweep(mutant: Mutant) {
    let world = Arc::new(World::new(1, mutant, Rmw));
    let third = start(&world, |world| world.sweep(0));
    let cutter = start(&world, |world| {
        if world.cut(0, B) {
            world.take(0);
        }
    });
    world.chunk_empty();
    third.join().unwrap();
    cutter.join().unwrap();
    world.check();
}

/// A child of fork: A's box, `mailed` and links are the parent's, and void.
fn child(mutant: Mutant) {
    let world = Arc::new(World::new(1, mutant, Rmw));
    world.mailbox[A].store(2 * 4 + PARENT, Relaxed); // header 1, then header 0
    world.headers[1].mail_next.store(1, Relaxed);
    for header in &world.headers {
        header.mailed.store(PARENT, Relaxed);
    }
    let late = start(&world, |world| world.notify(0));
    let stranger = start(&world, |world| world.stranger_free(1));
    world.chunk_empty();
    world.mail_take(A);
    late.join().unwrap();
    stranger.join().unwrap();
    world.mail_take(A);
    world.check();
}

#[test]
fn a_header_is_wiped_and_cut_again() {
    prove("wipe: cut again, exchange", None, || cut_again(Right, Rmw));
    prove("wipe: cut again, fences", None, || cut_again(Right, Fence));
    prove("wipe: after the wipe, exchange", None, || after_the_wipe(1, Right, Rmw));
    prove("wipe: after the wipe, fences", None, || after_the_wipe(1, Right, Fence));
    prove("wipe: after the wipe, two notifiers", Some(3), || after_the_wipe(2, Right, Rmw));
}

#[test]
fn a_notifier_need_not_look_at_null_again() {
    prove("wipe: no second look, cut again", None, || cut_again(NoSecondLook, Rmw));
    prove("wipe: no second look, cut again, fences", None, || cut_again(NoSecondLook, Fence));
    prove("wipe: no second look, after the wipe", None, || after_the_wipe(1, NoSecondLook, Rmw));
    prove("wipe: no second look, after the wipe, fences", None, || after_the_wipe(1, NoSecondLook, Fence));
    prove("wipe: no second look, two notifiers", Some(3), || after_the_wipe(2, NoSecondLook, Rmw));
}

#[test]
fn no_header_in_a_mailbox_is_wiped() {
    prove("wipe: a box with two", Some(3), || a_box_with_two(Right));
    prove("wipe: abort and restore", Some(3), || abort(Right));
}

#[test]
fn no_claim_is_wiped() {
    prove("wipe: a sweep", None, || sweep(Right));
}

#[test]
fn a_childs_mailbox_is_empty() {
    prove("wipe: a child's mailbox", None, || child(Right));
}

#[test]
fn mutants_are_refuted() {
    refute("wipe: mailed is not set", RACE, || a_box_with_two(NoExchange));
    refute("wipe: mailed is read only", RACE, || a_box_with_two(ChecksByLoad));
    refute("wipe: the granules are not taken", "never hears", || cut_again(WiperTakesNoGranules, Rmw));
    refute("wipe: the claim is not taken", RACE, || sweep(WiperTakesNoClaim));
    refute("wipe: the true mail is restored as well", RACE, || abort(RestoresTheMailedOne));
    refute("wipe: nothing is restored", "in no mailbox", || abort(NoRestore));
    refute("wipe: mail is pushed to NULL", "mail for NULL", || after_the_wipe(1, PushesToNull, Rmw));
    refute("wipe: mailed stays set at NULL", "in no mailbox", || after_the_wipe(1, NullStaysMailed, Rmw));
    refute("wipe: cut without a check", "never hears", || cut_again(CutWithoutCheck, Rmw));
    refute("wipe: the cutter's check is a load", "never hears", || cut_again(CutChecksWithPlainLoad, Rmw));
    refute("wipe: a push keeps the parent's mail", "nobody sent", || child(PushIgnoresTag));
    refute("wipe: the parent's mail is taken", "nobody sent", || child(TakeIgnoresTag));
}
