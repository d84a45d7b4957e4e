//! Third threads return pages of a slab that they claimed (src/slab/slab.h, src/heap/sweep.c).
//!
//! A slab has two blocks here, each with a page of its own: `pages[i]` is written by the block's user and
//! by whoever returns the page, and loom refuses two such accesses that nothing orders.

use hakmem_model::{prove, refute, RACE};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::*};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    Right,
    // One access is relaxed that was acquire or release.
    ThirdClaimRelaxed,
    ThirdUnclaimRelaxed,
    OwnerClaimRelaxed,
    OwnerUnclaimRelaxed,
    ThirdRemoteRelaxed,
    ThirdBitsRelaxed,
    OwnerFreeRelaxed,
    StrangerOrsRelaxed,
    CollectSwapsRelaxed,
    CollectStoresRelaxed,
    LiveRelaxed,
    BitsBeforeRemote,
    // One step is left out.
    ThirdTakesNoClaim,
    OwnerTakesNoClaim,
    ReleaseTakesNoClaim,
    CutTakesNoClaim,
    CutTakesNoClaimLiveRelaxed,
    ThirdSkipsLive,
    OwnerPublishesBeforeClearing,
}
use Mutant::*;

/// A word is handed out in parts: the lowest block only.
fn lowest(word: usize) -> usize {
    word & word.wrapping_neg()
}

const EPOCH: usize = 1;

struct Slab {
    claim: AtomicUsize,
    live: AtomicBool,
    bits: AtomicUsize,
    remote: AtomicUsize,
    /// What is written when the slab is cut: its start and the size of its blocks.
    geometry: UnsafeCell<usize>,
    /// Which pages are returned; guarded by the claim.
    returned: UnsafeCell<usize>,
    pages: [UnsafeCell<usize>; 2],
    mutant: Mutant,
}

impl Slab {
    fn new(bits: usize, mutant: Mutant) -> Arc<Slab> {
        Arc::new(Slab {
            claim: AtomicUsize::new(0),
            live: AtomicBool::new(true),
            bits: AtomicUsize::new(bits),
            remote: AtomicUsize::new(0),
            geometry: UnsafeCell::new(0),
            returned: UnsafeCell::new(0),
            pages: [UnsafeCell::new(0), UnsafeCell::new(0)],
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

    fn touch_pages(&self, blocks: usize) {
        for (i, page) in self.pages.iter().enumerate() {
            if blocks & (1 << i) != 0 {
                page.with_mut(|p| unsafe { *p += 1 });
            }
        }
    }

    // ---- a stranger

    fn stranger_uses_and_frees(&self, mask: usize) {
        self.touch_pages(mask);
        self.remote.fetch_or(mask, self.unless(StrangerOrsRelaxed, Release));
    }

    // ---- the owner

    fn owner_uses_and_frees(&self, mask: usize) {
        self.touch_pages(mask);
        let bits = self.bits.load(Relaxed);
        self.bits.store(bits | mask, self.unless(OwnerFreeRelaxed, Release));
    }

    fn owner_collects(&self) {
        let remote = self.remote.swap(0, self.unless(CollectSwapsRelaxed, Acquire));
        let bits = self.bits.load(Relaxed);
        self.bits.store(bits | remote, self.unless(CollectStoresRelaxed, Release));
    }

    fn owner_claims(&self) -> bool {
        let order = self.unless(OwnerClaimRelaxed, Acquire);
        self.claim.compare_exchange(0, EPOCH, order, Relaxed).is_ok()
    }

    fn owner_unclaims(&self) {
        self.claim.store(0, self.unless(OwnerUnclaimRelaxed, Release));
    }

    /// Hands out a part of the slab's word; its blocks' users are this thread.
    fn owner_takes(&self) -> usize {
        if self.mutant == OwnerTakesNoClaim {
            let word = lowest(self.bits.load(Relaxed));
            self.bits.store(self.bits.load(Relaxed) & !word, Relaxed);
            self.touch_pages(word);
            return word;
        }
        if !self.owner_claims() {
            return 0;
        }
        let bits = self.bits.load(Relaxed);
        let word = lowest(bits);
        if self.mutant == OwnerPublishesBeforeClearing {
            self.owner_unclaims();
            self.bits.store(bits & !word, Relaxed);
        } else {
            self.bits.store(bits & !word, Relaxed);
            self.returned.with_mut(|p| unsafe { *p &= !word });
            self.owner_unclaims();
        }
        self.touch_pages(word);
        word
    }

    fn owner_releases(&self) -> bool {
        if self.mutant == ReleaseTakesNoClaim {
            self.live.store(false, Relaxed);
            return true;
        }
        if !self.owner_claims() {
            return false;
        }
        self.live.store(false, Relaxed);
        self.owner_unclaims();
        true
    }

    fn owner_cuts(&self, geometry: usize) -> bool {
        let claims = !matches!(self.mutant, CutTakesNoClaim | CutTakesNoClaimLiveRelaxed);
        if claims && !self.owner_claims() {
            return false;
        }
        self.geometry.with_mut(|p| unsafe { *p = geometry });
        self.bits.store(3, Relaxed);
        self.live.store(true, self.live_order(Release));
        if claims {
            self.owner_unclaims();
        }
        true
    }

    fn live_order(&self, order: Ordering) -> Ordering {
        if matches!(self.mutant, LiveRelaxed | CutTakesNoClaimLiveRelaxed) {
            Relaxed
        } else {
            order
        }
    }

    // ---- a third thread

    fn third_returns_pages(&self) {
        if self.mutant != ThirdTakesNoClaim {
            let order = self.unless(ThirdClaimRelaxed, Acquire);
            if self.claim.compare_exchange(0, EPOCH, order, Relaxed).is_err() {
                return;
            }
        }
        if self.mutant == ThirdSkipsLive || self.live.load(self.live_order(Acquire)) {
            self.geometry.with(|p| unsafe { *p });
            let (remote, bits);
            if self.mutant == BitsBeforeRemote {
                bits = self.bits.load(Acquire);
                remote = self.remote.load(Acquire);
            } else {
                remote = self.remote.load(self.unless(ThirdRemoteRelaxed, Acquire));
                bits = self.bits.load(self.unless(ThirdBitsRelaxed, Acquire));
            }
            self.touch_pages(bits | remote);
            self.returned.with_mut(|p| unsafe { *p |= bits | remote });
        }
        self.claim.store(0, self.unless(ThirdUnclaimRelaxed, Release));
    }
}

fn with_third(slab: &Arc<Slab>) -> thread::JoinHandle<()> {
    let slab = slab.clone();
    thread::spawn(move || slab.third_returns_pages())
}

fn with_stranger(slab: &Arc<Slab>) -> thread::JoinHandle<()> {
    let slab = slab.clone();
    thread::spawn(move || slab.stranger_uses_and_frees(2))
}

/// The owner frees one block, a stranger the other; the owner collects and takes what it finds.
fn taken(mutant: Mutant) {
    let slab = Slab::new(0, mutant);
    let threads = [with_third(&slab), with_stranger(&slab)];
    slab.owner_uses_and_frees(1);
    slab.owner_collects();
    let word = slab.owner_takes();
    slab.owner_uses_and_frees(word);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// All blocks are free; the owner releases the slab, and its memory becomes a large block.
fn made_large(mutant: Mutant) {
    let slab = Slab::new(3, mutant);
    let third = with_third(&slab);
    if slab.owner_releases() {
        slab.geometry.with_mut(|p| unsafe { *p = 7 });
        slab.touch_pages(3);
    }
    third.join().unwrap();
}

/// All blocks are free; the owner releases the slab and cuts one of other blocks at the same header.
fn cut_anew(mutant: Mutant) {
    let slab = Slab::new(3, mutant);
    let third = with_third(&slab);
    if slab.owner_releases() && slab.owner_cuts(1) {
        slab.owner_takes();
    }
    third.join().unwrap();
}

/// Two third threads at once.
fn two_thirds(mutant: Mutant) {
    let slab = Slab::new(1, mutant);
    let threads = [with_third(&slab), with_third(&slab)];
    slab.owner_takes();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_page_is_never_returned_under_a_live_block() {
    prove("claims: free, collect, take", None, || taken(Right));
    prove("claims: two third threads", None, || two_thirds(Right));
}

#[test]
fn a_released_slab_is_left_alone() {
    prove("claims: released, then a large block", None, || made_large(Right));
    prove("claims: released, then cut anew", None, || cut_anew(Right));
}

#[test]
fn a_cut_needs_its_claim_or_the_order_of_live() {
    prove("claims: cut with the claim, live relaxed", None, || cut_anew(LiveRelaxed));
    prove("claims: cut without it, live ordered", None, || cut_anew(CutTakesNoClaim));
}

#[test]
fn the_two_rows_may_be_read_in_either_order() {
    prove("claims: bits before the strangers' row", None, || taken(BitsBeforeRemote));
}

#[test]
fn every_order_is_needed() {
    refute("claims: the third thread's claim is relaxed", RACE, || taken(ThirdClaimRelaxed));
    refute("claims: the third thread's unclaim is relaxed", RACE, || taken(ThirdUnclaimRelaxed));
    refute("claims: the owner's claim is relaxed", RACE, || taken(OwnerClaimRelaxed));
    refute("claims: the owner's unclaim is relaxed", RACE, || taken(OwnerUnclaimRelaxed));
    refute("claims: remote is read relaxed", RACE, || taken(ThirdRemoteRelaxed));
    refute("claims: bits are read relaxed", RACE, || taken(ThirdBitsRelaxed));
    refute("claims: the owner's free is relaxed", RACE, || taken(OwnerFreeRelaxed));
    refute("claims: the stranger's OR is relaxed", RACE, || taken(StrangerOrsRelaxed));
    refute("claims: the collector's exchange is relaxed", RACE, || taken(CollectSwapsRelaxed));
    refute("claims: the collector's store is relaxed", RACE, || taken(CollectStoresRelaxed));
    refute("claims: live is relaxed, cut without claim", RACE, || cut_anew(CutTakesNoClaimLiveRelaxed));
}

#[test]
fn every_step_is_needed() {
    refute("claims: the third thread takes no claim", RACE, || taken(ThirdTakesNoClaim));
    refute("claims: the owner takes no claim", RACE, || taken(OwnerTakesNoClaim));
    refute("claims: the owner unclaims before it clears", RACE, || taken(OwnerPublishesBeforeClearing));
    refute("claims: a release takes no claim", RACE, || made_large(ReleaseTakesNoClaim));
    refute("claims: live is not tested again", RACE, || made_large(ThirdSkipsLive));
}
