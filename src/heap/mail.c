/* mail.c - blocks of other heaps' slabs: strangers give them back, owners take them in.
 *
 * Threads:   any. A stranger's free is one atomic OR on the slab's second row. Only the stranger whose OR found
 *            the word at 0 notifies the owner; all others touch nothing after their OR, for the slab may be
 *            someone else's by then. docs/protocols.md, 2; modelled in test/model.
 * Invariant: mailed == epoch  <=>  the slab is in exactly one mailbox of this process, or its notifier is
 *            about to push it.
 */
#include "heap/heap.h"

enum { BATCH_BYTES = 8192 };

/* --- mailboxes: a stack of slabs, its head tagged with the epoch so that a child finds the parent's void --- */

enum { TAG_MASK = HAK_LINE - 1 };

static uintptr_t tag_now(void) { return hak_load_relaxed(&hak_epoch) & TAG_MASK; }

static void box_push(struct hak_heap *owner, struct hak_slab *slab) {
    uintptr_t head = hak_load_relaxed(&owner->mail), tag = tag_now(), first;
    do {
        first = (head & TAG_MASK) == tag ? head & ~(uintptr_t)TAG_MASK : 0;
        hak_store_relaxed(&slab->mail_next, (struct hak_slab *)first);
    } while (!hak_cas_weak(&owner->mail, &head, (uintptr_t)slab | tag));
}

static void dead_deliver(struct hak_heap *owner) {
    if (!hak_heap_dead_claim(owner)) return;
    hak_mail_take(owner);
    hak_heap_dead_unclaim(owner);
}

/* A dead heap has nobody to read its mail: who posts there does, but not for every slab. Where threads hand their blocks
 * to successors (larson), two frees of three posted, and reading at once cost more than all else. What waits
 * meanwhile is less than DEAD_MAIL slabs; the poster's next sweep, and who takes the heap, read it too. */
static void dead_posted(struct hak_heap *self, struct hak_heap *owner) {
    enum { DEAD_MAIL = 8 };
    if (hak_load_acquire(&owner->state) != HAK_HEAP_DEAD) return;
    if (hak_add(&owner->unread, 1) + 1 >= DEAD_MAIL || hak_heap_is_none(self)) dead_deliver(owner);
    else self->left_mail = owner;
}

void hak_mail_left(struct hak_heap *self) {
    struct hak_heap *owner = self->left_mail;
    if (!owner) return;
    self->left_mail = NULL;
    if (hak_load_acquire(&owner->state) == HAK_HEAP_DEAD) dead_deliver(owner);
}

static void notify(struct hak_heap *self, struct hak_slab *slab) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    /* seq_cst both: pairs with slab_make(), which writes owner and then reads mailed */
    if (atomic_exchange(&slab->mailed, epoch) == epoch) return;
    struct hak_heap *owner = atomic_load(&slab->owner);
    if (HAK_UNLIKELY(owner == NULL)) { /* the slab ended and its chunk's metadata went back: nobody to tell */
        atomic_store(&slab->mailed, 0);
        return;
    }
    if (!hak_heap_is_none(self)) HAK_COUNT(&self->counters, mail_sent, 1);
    box_push(owner, slab);
    dead_posted(self, owner);
}

/* --- the stranger's side --- */

static void give(struct hak_heap *self, struct hak_slab *slab, unsigned index, uint64_t mask) {
    struct hak_row *row = hak_slab_row(slab);
    char *first = hak_slab_start(slab) + (size_t)index * 64 * row->block_bytes;
    uint32_t bytes = row->block_bytes;
    uint64_t own = hak_load_acquire(&row->word[index]) & mask;
    if (HAK_UNLIKELY(own)) hak_slab_misuse("free", first + (size_t)hak_word_first(own) * bytes);
    /* release: the program's last writes to the blocks; acquire: who finds 0 goes on to the header */
    uint64_t old = hak_or(&hak_slab_remote(slab)[index], mask);
    if (HAK_UNLIKELY(old & mask)) hak_slab_misuse("free", first + (size_t)hak_word_first(old & mask) * bytes);
    if (old == 0) notify(self, slab);
}

void hak_batch_flush(struct hak_heap *self) {
    uint64_t mask = self->batch.mask;
    if (!mask) return;
    self->batch.mask = 0; /* first: a thread that vanishes here loses blocks, never doubles them */
    HAK_COUNT(&self->counters, free_batch, 1);
    give(self, self->batch.slab, self->batch.index, mask);
}

void hak_stranger_free(struct hak_heap *self, struct hak_slab *slab, unsigned block) {
    unsigned index = block / 64;
    uint64_t bit = UINT64_C(1) << block % 64;
    if (hak_heap_is_none(self)) {
        give(self, slab, index, bit);
        return;
    }
    HAK_COUNT(&self->counters, free_stranger, 1);
    struct hak_batch *batch = &self->batch;
    if (batch->mask && batch->slab == slab && batch->index == index) {
        if (HAK_UNLIKELY(batch->mask & bit))
            hak_slab_misuse("free", hak_slab_start(slab) + (size_t)block * hak_slab_row(slab)->block_bytes);
        batch->mask |= bit;
        if (--batch->room == 0) hak_batch_flush(self);
        return;
    }
    hak_batch_flush(self);
    uint32_t bytes = hak_slab_row(slab)->block_bytes;
    if (hak_load_acquire(&hak_slab_row(slab)->word[index]) & bit)
        hak_slab_misuse("free", hak_slab_start(slab) + (size_t)block * bytes);
    if (bytes >= BATCH_BYTES / 2) {
        give(self, slab, index, bit);
        return;
    }
    batch->slab = slab;
    batch->index = index;
    batch->mask = bit;
    batch->room = BATCH_BYTES / bytes - 1;
    self->clock_in = 0; /* the next visit flushes it */
}

/* --- the owner's side --- */

/* `count` of the program's blocks came back: fires the event once if the countdown is passed. */
static void collected(struct hak_heap *heap, struct hak_slab *slab, uint32_t count) {
    struct hak_row *row = hak_slab_row(slab);
    HAK_COUNT(&heap->counters, collected, count);
    if (count < row->countdown) {
        row->countdown -= count;
        return;
    }
    hak_row_arm(row, hak_row_out(row) - count, 0);
    hak_event(heap, slab);
}

void hak_mail_take(struct hak_heap *heap) {
    hak_store_relaxed(&heap->unread, 0);
    uintptr_t head = hak_exchange(&heap->mail, 0);
    if ((head & TAG_MASK) != tag_now()) return; /* the parent's */
    struct hak_slab *slab = (struct hak_slab *)(head & ~(uintptr_t)TAG_MASK);
    while (slab) {
        struct hak_slab *next = hak_load_relaxed(&slab->mail_next); /* before mailed: then it may be pushed again */
        HAK_COUNT(&heap->counters, mail_taken, 1);
        struct hak_heap *owner = atomic_load(&slab->owner);
        if (owner != heap) {
            HAK_COUNT(&heap->counters, mail_forwarded, 1);
            box_push(owner, slab);
            dead_posted(heap, owner);
        } else {
            bool live = slab->place != HAK_SLAB_NONE; /* before: then another heap may cut a slab here (test/model) */
            atomic_exchange(&slab->mailed, 0);        /* before the words: a stranger from here on notifies anew */
            if (live) {
                hak_middle_collect(heap, slab);
                uint32_t count = hak_slab_collect(slab);
                if (count) collected(heap, slab, count);
            }
        }
        slab = next;
    }
}
