//! Death and birth of heaps, and who may act for a dead one (src/heap/birth.c).
//!
//! `owned` stands for all that only the owner of a heap may change: two threads that act as one heap's
//! owner at once, or one after the other without an order between them, are refused by loom.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicUsize, Ordering, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    NoTag,
    BirthSkipsState,
    BirthDropsBusy,
    HelperLooksThenStores,
    DeathRelaxed,
    BirthRelaxed,
    HelperEntersRelaxed,
    HelperLeavesRelaxed,
    PushRelaxed,
    PopLoadsRelaxed,
    PushedBeforeDead,
    // Right as well: see the tests.
    PushedBackWhileBusy,
    // Mail for a heap that dies.
    NoSecondLook,
    SecondLookIsALoad,
    SecondLookExchanges,
    SenderHasNoFence,
    MailPushedReleaseOnly,
    // Heaps that are claimed by name.
    ListedTwice,
    DroppedForGood,
    DroppedThenDeadOnly,
    DroppedByAStore,
    // Heaps of threads that ended unseen.
    NotByCas,
    GiftsUncounted,
}
use Mutant::*;

const LIVE: usize = 0;
const DEAD: usize = 1;
const BUSY: usize = 2;

const TAG_ONE: usize = 1 << 32;
const INDEX_MASK: usize = TAG_ONE - 1;

struct Heap {
    state: AtomicUsize,
    /// The next dead heap's index + 1, or 0.
    next: AtomicUsize,
    /// 1: on the list, or about to be.
    listed: AtomicUsize,
    /// The number of mails, in place of a list.
    mailbox: AtomicUsize,
    owned: UnsafeCell<usize>,
}

struct World {
    heaps: [Heap; 3],
    head: AtomicUsize,
    /// Heap 0's: the number of its thread, and above it how often the heap was given.
    thread: AtomicUsize,
    /// There is a thread of that number; the kernel gives it to another one later.
    there: AtomicUsize,
    mutant: Mutant,
}

const NUMBER: usize = 7;
const GIFT_ONE: usize = 256;

impl World {
    /// The heaps of `dead` are on the list, the first one on top; the others are live.
    fn new(dead: &[usize], mutant: Mutant) -> Arc<World> {
        let heap = || Heap {
            state: AtomicUsize::new(LIVE),
            next: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            mailbox: AtomicUsize::new(0),
            owned: UnsafeCell::new(0),
        };
        let (thread, there) = (AtomicUsize::new(GIFT_ONE + NUMBER), AtomicUsize::new(1));
        let heaps = [heap(), heap(), heap()];
        let world = World { heaps, head: AtomicUsize::new(0), thread, there, mutant };
        for &h in dead.iter().rev() {
            world.heaps[h].state.store(DEAD, Relaxed);
            world.list(h);
        }
        Arc::new(world)
    }

    /// `order`, but relaxed in this mutant.
    fn unless(&self, mutant: Mutant, order: Ordering) -> Ordering {
        if self.mutant == mutant {
            Relaxed
        } else {
            order
        }
    }

    fn act_as_owner(&self, h: usize) {
        self.heaps[h].owned.with_mut(|p| unsafe { *p += 1 });
    }

    // ---- the list of dead heaps

    fn push(&self, h: usize) {
        let mut head = self.head.load(Relaxed);
        loop {
            self.heaps[h].next.store(head & INDEX_MASK, Relaxed);
            let new = (head & !INDEX_MASK) | (h + 1);
            match self.head.compare_exchange(head, new, self.unless(PushRelaxed, Release), Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    fn pop(&self) -> Option<usize> {
        let order = self.unless(PopLoadsRelaxed, Acquire);
        let mut head = self.head.load(order);
        while head & INDEX_MASK != 0 {
            let h = (head & INDEX_MASK) - 1;
            let tag = if self.mutant == NoTag { 0 } else { (head & !INDEX_MASK) + TAG_ONE };
            let new = tag | self.heaps[h].next.load(Relaxed);
            match self.head.compare_exchange(head, new, order, order) {
                Ok(_) => return Some(h),
                Err(seen) => head = seen,
            }
        }
        None
    }

    /// One that was claimed by name is there already.
    fn list(&self, h: usize) {
        if self.heaps[h].listed.swap(1, AcqRel) == 0 || self.mutant == ListedTwice {
            self.push(h);
        }
    }

    /// It was popped, and lives.
    fn unlist(&self, h: usize) {
        if self.mutant == DroppedByAStore {
            self.heaps[h].listed.store(0, Release);
        } else {
            self.heaps[h].listed.swap(0, AcqRel);
        }
        let state = self.heaps[h].state.load(Relaxed);
        match self.mutant {
            DroppedForGood => (),
            DroppedThenDeadOnly if state == BUSY => (),
            _ if state == LIVE => (),
            _ => self.list(h),
        }
    }

    // ---- states

    /// DEAD -> `state`. The load stands for a CAS that fails on an old value; loom's never does.
    fn enter(&self, h: usize, state: usize, order: Ordering) -> bool {
        self.heaps[h].state.load(Relaxed) == DEAD
            && self.heaps[h].state.compare_exchange(DEAD, state, order, Relaxed).is_ok()
    }

    fn death(&self, h: usize) {
        self.act_as_owner(h);
        if self.mutant == PushedBeforeDead {
            self.list(h);
            self.heaps[h].state.store(DEAD, Release);
        } else {
            self.heaps[h].state.store(DEAD, self.unless(DeathRelaxed, Release));
            self.list(h);
        }
    }

    fn birth(&self) -> Option<usize> {
        let mut aside = Vec::new();
        let mut born = None;
        while let Some(h) = self.pop() {
            if self.mutant == BirthSkipsState {
                self.heaps[h].listed.swap(0, AcqRel);
                self.heaps[h].state.store(LIVE, Relaxed);
                born = Some(h);
                break;
            }
            if self.enter(h, BUSY, self.unless(BirthRelaxed, Acquire)) {
                self.heaps[h].listed.swap(0, AcqRel);
                self.heaps[h].state.store(LIVE, Relaxed);
                born = Some(h);
                break;
            }
            if self.heaps[h].state.load(Relaxed) == LIVE {
                self.unlist(h);
                continue;
            }
            aside.push(h);
        }
        if self.mutant != BirthDropsBusy {
            aside.into_iter().for_each(|h| self.push(h));
        }
        if let Some(h) = born {
            self.act_as_owner(h);
        }
        born
    }

    /// A birth that wants this heap, which stays on the list.
    fn birth_as(&self, h: usize) -> bool {
        if !self.enter(h, BUSY, Acquire) {
            return false;
        }
        self.heaps[h].state.store(LIVE, Relaxed);
        self.act_as_owner(h);
        true
    }

    /// A stranger collects a dead heap, which stays on the list.
    fn help(&self, h: usize) {
        if self.mutant == HelperLooksThenStores {
            if self.heaps[h].state.load(Acquire) != DEAD {
                return;
            }
            self.heaps[h].state.store(BUSY, Relaxed);
        } else if !self.enter(h, BUSY, self.unless(HelperEntersRelaxed, Acquire)) {
            return;
        }
        self.act_as_owner(h);
        self.heaps[h].state.store(DEAD, self.unless(HelperLeavesRelaxed, Release));
    }

    /// A live heap takes a slab out of a dead one.
    fn take_slab(&self) {
        if let Some(h) = self.pop() {
            if !self.enter(h, BUSY, Acquire) {
                return if self.heaps[h].state.load(Relaxed) == LIVE { self.unlist(h) } else { self.push(h) };
            }
            self.heaps[h].listed.swap(0, AcqRel);
            self.act_as_owner(h);
            if self.mutant == PushedBackWhileBusy {
                self.list(h);
                self.heaps[h].state.store(DEAD, Release);
            } else {
                self.heaps[h].state.store(DEAD, Release);
                self.list(h);
            }
        }
    }

    // ---- mail for a heap that dies

    fn collect_mail(&self, h: usize) {
        self.act_as_owner(h);
        self.heaps[h].mailbox.swap(0, AcqRel);
    }

    /// Give up a heap; a mail that came meanwhile is read by somebody.
    fn leave(&self, h: usize) {
        let heap = &self.heaps[h];
        loop {
            heap.state.store(DEAD, Release);
            let mail = match self.mutant {
                NoSecondLook => 0,
                SecondLookIsALoad => heap.mailbox.load(Acquire),
                SecondLookExchanges | MailPushedReleaseOnly => heap.mailbox.fetch_or(0, AcqRel),
                _ => {
                    fence(SeqCst);
                    heap.mailbox.load(Relaxed)
                }
            };
            if mail == 0 || !self.enter(h, BUSY, Acquire) {
                return;
            }
            self.collect_mail(h);
        }
    }

    fn send_mail(&self, h: usize) {
        let order = if self.mutant == MailPushedReleaseOnly { Release } else { AcqRel };
        let before = self.heaps[h].mailbox.fetch_add(1, order);
        if before != 0 {
            return; // who filled the empty box helps
        }
        if !matches!(self.mutant, SenderHasNoFence | SecondLookExchanges | MailPushedReleaseOnly) {
            fence(SeqCst);
        }
        if self.enter(h, BUSY, Acquire) {
            self.collect_mail(h);
            self.leave(h);
        }
    }

    // ---- a thread that ends unseen

    fn end_unseen(&self) {
        self.act_as_owner(0);
        self.there.store(0, Release);
    }

    fn end_if_vanished(&self) {
        let seen = self.thread.load(Acquire);
        if seen % GIFT_ONE == 0 || self.there.load(Acquire) != 0 {
            return;
        }
        let nobody = seen - NUMBER;
        if self.mutant == NotByCas {
            self.thread.store(nobody, Release);
        } else if self.thread.compare_exchange(seen, nobody, AcqRel, Relaxed).is_err() {
            return;
        }
        self.act_as_owner(0);
        self.heaps[0].state.store(DEAD, Release);
        self.list(0);
    }

    /// A thread to which the kernel gives the same number.
    fn birth_with_the_number(&self) {
        if let Some(h) = self.birth() {
            assert!(h == 0);
            self.there.store(1, Release);
            let gift = if self.mutant == GiftsUncounted { 0 } else { GIFT_ONE };
            self.thread.store(self.thread.load(Relaxed) + gift + NUMBER, Release);
            self.act_as_owner(0);
        }
    }

    // ---- at the end

    /// Every heap is live, or dead and on the list once; one that was claimed by name may live there.
    fn check(&self) {
        let last = |of: &AtomicUsize| of.fetch_or(0, AcqRel); // loom lets a load read a store that is not the last
        let mut seen = [0; 3];
        let mut link = last(&self.head) & INDEX_MASK;
        while link != 0 {
            seen[link - 1] += 1;
            assert!(seen[link - 1] == 1, "a dead heap is on the list twice");
            link = last(&self.heaps[link - 1].next);
        }
        for (heap, seen) in self.heaps.iter().zip(seen) {
            let state = last(&heap.state);
            assert!(state != BUSY, "a heap stays busy");
            assert!(state == LIVE || seen == 1, "a dead heap is lost");
            assert!(state == DEAD || seen == last(&heap.listed), "a live heap is on the list of dead ones");
        }
    }
}

fn spawn(world: &Arc<World>, run: fn(&World)) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || run(&world))
}

/// One thread dies, one is born and dies, and a stranger helps one of the heaps.
fn lives(mutant: Mutant) {
    let world = World::new(&[1], mutant);
    let threads = [
        spawn(&world, |world| world.death(0)),
        spawn(&world, |world| {
            if let Some(h) = world.birth() {
                world.act_as_owner(h);
            }
        }),
    ];
    world.help(1);
    world.help(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

/// One thread is born while another one is born twice and dies once: the stack's old top comes back.
fn old_top_comes_back(mutant: Mutant) {
    let world = World::new(&[0, 1, 2], mutant);
    let thread = spawn(&world, |world| {
        world.birth();
    });
    let first = world.birth();
    let _second = world.birth();
    if let Some(h) = first {
        world.death(h);
    }
    thread.join().unwrap();
    world.check();
}

/// A heap is claimed by name where it is on the list, and dies again, while another thread is born and a stranger helps.
fn claimed_by_name(mutant: Mutant) {
    let world = World::new(&[0, 1], mutant);
    let threads = [
        spawn(&world, |world| {
            if world.birth_as(0) {
                world.death(0);
            }
        }),
        spawn(&world, |world| {
            world.birth();
        }),
    ];
    world.help(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

/// The same, while a live heap takes a slab.
fn claimed_by_name_while_slabs_are_taken(mutant: Mutant) {
    let world = World::new(&[0], mutant);
    let threads = [
        spawn(&world, |world| world.take_slab()),
        spawn(&world, |world| {
            world.birth();
        }),
    ];
    if world.birth_as(0) {
        world.death(0);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

/// A live heap takes slabs from dead ones, while others are born and help.
fn slabs_are_taken(mutant: Mutant) {
    let world = World::new(&[0, 1], mutant);
    let threads = [
        spawn(&world, |world| world.take_slab()),
        spawn(&world, |world| {
            world.birth();
        }),
    ];
    world.help(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

/// Strangers mail a heap while its thread ends: in the end no mail lies in a dead heap.
fn mail_for_the_dying(mutant: Mutant) {
    let world = World::new(&[], mutant);
    let threads = [spawn(&world, |world| world.send_mail(0)), spawn(&world, |world| world.send_mail(0))];
    world.collect_mail(0);
    world.leave(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(world.heaps[0].state.load(Relaxed), DEAD);
    assert_eq!(world.heaps[0].mailbox.load(Relaxed), 0, "a mail lies in a dead heap");
}

/// A thread ends unseen; two look for such, and a third is born, with the same number.
fn ends_unseen(mutant: Mutant) {
    let world = World::new(&[], mutant);
    let threads = [
        spawn(&world, |world| world.end_if_vanished()),
        spawn(&world, |world| {
            world.end_if_vanished();
            world.birth_with_the_number();
        }),
    ];
    world.end_unseen();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.check();
}

#[test]
fn the_heap_of_a_thread_that_ended_unseen_has_one_finder() {
    prove("heaps: a thread ends unseen", Some(3), || ends_unseen(Right));
}

#[test]
fn a_heap_has_one_owner_and_no_dead_heap_is_lost() {
    prove("heaps: a death, a birth, a helper", Some(3), || lives(Right));
    prove("heaps: the old top comes back", None, || old_top_comes_back(Right));
    prove("heaps: slabs are taken", Some(3), || slabs_are_taken(Right));
}

#[test]
fn a_heap_that_is_claimed_by_name_is_not_lost() {
    prove("heaps: claimed by name", Some(3), || claimed_by_name(Right));
    prove("heaps: claimed by name, slabs are taken", Some(3), || claimed_by_name_while_slabs_are_taken(Right));
}

#[test]
fn a_heap_may_go_back_to_the_list_while_it_is_busy() {
    prove("heaps: pushed back while busy", Some(3), || slabs_are_taken(PushedBackWhileBusy));
    prove("heaps: pushed back while busy, claimed by name", Some(2), || {
        claimed_by_name_while_slabs_are_taken(PushedBackWhileBusy)
    });
}

#[test]
fn no_mail_lies_in_a_dead_heap() {
    prove("heaps: mail for the dying", Some(3), || mail_for_the_dying(Right));
    prove("heaps: mail for the dying, exchange", Some(3), || mail_for_the_dying(SecondLookExchanges));
}

#[test]
fn mutants_are_refuted() {
    refute("heaps: no tag", "a live heap is on the list", || old_top_comes_back(NoTag));
    refute("heaps: birth does not ask the state", RACE, || lives(BirthSkipsState));
    refute("heaps: birth forgets a busy heap", "lost", || lives(BirthDropsBusy));
    refute("heaps: the helper looks, then stores", RACE, || lives(HelperLooksThenStores));
    refute("heaps: death is relaxed", RACE, || lives(DeathRelaxed));
    refute("heaps: birth is relaxed", RACE, || lives(BirthRelaxed));
    refute("heaps: the helper enters relaxed", RACE, || lives(HelperEntersRelaxed));
    refute("heaps: the helper leaves relaxed", RACE, || lives(HelperLeavesRelaxed));
    refute("heaps: pushed before it is dead", "lost", || lives(PushedBeforeDead));
    refute("heaps: the push is relaxed", "lost", || lives(PushRelaxed));
    refute("heaps: the pop is relaxed", "lost", || lives(PopLoadsRelaxed));
    refute("heaps: no second look for mail", "lies in", || mail_for_the_dying(NoSecondLook));
    refute("heaps: the second look is a load", "lies in", || mail_for_the_dying(SecondLookIsALoad));
    refute("heaps: the sender has no fence", "lies in", || mail_for_the_dying(SenderHasNoFence));
    refute("heaps: mail is pushed without acquire", "lies in", || mail_for_the_dying(MailPushedReleaseOnly));
    refute("heaps: listed where it is", "twice", || claimed_by_name(ListedTwice));
    refute("heaps: dropped for good", "lost", || claimed_by_name(DroppedForGood));
    refute("heaps: dropped though it is busy", "lost", || claimed_by_name(DroppedThenDeadOnly));
    refute("heaps: dropped by a store", "lost", || claimed_by_name(DroppedByAStore));
    refute("heaps: the finder stores", RACE, || ends_unseen(NotByCas));
    refute("heaps: gifts are not counted", RACE, || ends_unseen(GiftsUncounted));
}
