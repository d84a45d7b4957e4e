/* mail.c - blocks of other heaps' slabs: strangers give them back, owners take them in.
 *
 * Threads:   any. A stranger's free is one atomic OR on the slab's second row. Only the stranger whose OR found
 *            the word at 0 notifies the owner; all others touch nothing after their OR, for the slab may be
 *            someone else's by then. docs/protocols.md, 2; modelled in test/model.
 * Invariant: mailed == epoch  <=>  the slab is in exactly one mailbox of this process, or its notifier is
 *            about to push it.
 */
#include "heap/batch.h"
#include "heap/family.h"
#include "heap/hooks.h"
#include "heap/letters.h"
#include "memory/purge.h"

/* --- mailboxes: a stack of slabs, its head tagged with the epoch so that a child finds the parent's void --- */

/* Six bits below a header's address and sixteen above all addresses of programs: with six alone, mail that nobody had read was
 * valid again 64 forks below, and a slab was pushed before itself. */
#define TAG_LOW ((uintptr_t)HAK_LINE - 1)
#define TAG_MASK (TAG_LOW | (uintptr_t)0xffff << 48)

static uintptr_t tag_now(void) {
    uintptr_t epoch = hak_load_relaxed(&hak_epoch);
    return (epoch & TAG_LOW) | (epoch / HAK_LINE & 0xffff) << 48;
}

static void box_push(struct hak_heap *owner, struct hak_slab *slab) {
    uintptr_t head = hak_load_relaxed(&owner->mail), tag = tag_now(), first;
    do {
        first = (head & TAG_MASK) == tag ? head & ~TAG_MASK : 0;
        hak_store_relaxed(&slab->mail_next, (struct hak_slab *)first);
    } while (!hak_cas_weak(&owner->mail, &head, (uintptr_t)slab | tag));
}

static void dead_deliver(struct hak_heap *owner) {
    if (!hak_heap_dead_claim(owner)) return;
    hak_mail_take(owner);
    if (HAK_UNLIKELY(owner->pending)) hak_event_pending(owner); /* a slab whose end met a claim */
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

void hak_mail_of_dead(struct hak_heap *heap) {
    bool waits = hak_load_relaxed(&heap->mail) != 0 || __atomic_load_n(&heap->pending, __ATOMIC_RELAXED) != 0;
    if (waits && hak_load_acquire(&heap->state) == HAK_HEAP_DEAD) dead_deliver(heap);
}

void hak_mail_left(struct hak_heap *self) {
    struct hak_heap *owner = self->left_mail;
    if (!owner) return;
    self->left_mail = NULL;
    if (hak_load_acquire(&owner->state) == HAK_HEAP_DEAD) dead_deliver(owner);
}

static void notify(struct hak_heap *self, struct hak_slab *slab) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    if (atomic_load(&slab->mailed) == epoch) return; /* seq_cst: whoever makes it 0 will read the word behind that */
    struct hak_heap *likely = hak_load_relaxed(&slab->owner);
    if (HAK_LIKELY(likely != NULL)) hak_prefetch_write(&likely->mail); /* all strangers write it: it comes while `mailed` does */
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

static HAK_COLD __attribute__((noreturn)) void given_twice(const struct hak_slab *slab, const hak_atomic_u64 *word, uint64_t bits) {
    const struct hak_row *row = hak_slab_row(slab);
    hak_slab_misuse("free", row->start + ((size_t)(word - row->word) * 64 + hak_word_first(bits)) * row->block_bytes);
}

HAK_COLD void hak_batch_twice(const struct hak_batch *batch, uint64_t bits) { given_twice(batch->slab, batch->word, bits); }

void hak_given_taken(struct hak_heap *heap, const struct hak_row *row, uint32_t count) {
    hak_given_sum(&heap->given_sum, -hak_given_bytes(count, HAK_BATCH_BYTES / row->block_bytes));
    if (atomic_load(&row->slab->settled)) hak_slab_settle(row->slab, 0);
}

/* What is given is free memory that only its owner knows to use, who may wait for long. A thread without a heap has no sum of its own, and
 * the one of all would cost it half as much again for each block: what it frees is not counted. */
static void given(struct hak_heap *self, unsigned count, unsigned room) {
    if (HAK_UNLIKELY(hak_given_sum(&self->given_sum, hak_given_bytes(count, room))) && hak_given_over() && self == hak_self) hak_sweep_given();
}

static void give(struct hak_heap *self, struct hak_slab *slab, hak_atomic_u64 *word, unsigned behind, uint64_t mask) {
    uint64_t own = hak_load_acquire(word) & mask;
    if (HAK_UNLIKELY(own)) given_twice(slab, word, own);
    /* release: the program's last writes to the blocks; acquire: who finds 0 goes on to the header; seq_cst: then `mailed`
     * is read. The owner writes `mailed` and then reads the word: one of the two sees the other. */
    hak_atomic_u64 *remote = hak_slab_remote_word(word, behind);
    uint64_t old = 0; /* a guess: a load first would have the line come for reading, and come again */
    while (!atomic_compare_exchange_weak(remote, &old, old | mask))
        if (HAK_UNLIKELY(old & mask)) given_twice(slab, word, old & mask);
    if (old == 0) notify(self, slab);
}

/* How many blocks a batch had of late, in sixteenths. */
enum { GATHERED_ONE = 16, GATHERED_OF = 8 };

HAK_NOINLINE void hak_batch_flush_one(struct hak_heap *self, struct hak_batch *batch) {
    uint64_t mask = batch->mask;
    unsigned count = hak_word_count(mask);
    self->gathered += ((int32_t)count * GATHERED_ONE - self->gathered) / GATHERED_OF;
    /* who asks whether blocks are in batches (heap/census.c) finds them in the mask, in flight, or in the row, looked at in this order: each
     * store is a release for the one before. A handler that flushes another batch meanwhile leaves this one in flight. */
    struct hak_batch *outer = hak_load_relaxed(&self->flying);
    uint64_t outer_mask = hak_load_relaxed(&self->flying_mask);
    hak_store_release(&self->flying_mask, mask); /* who sees it sees its batch's word, too */
    hak_store_release(&self->flying, batch);
    hak_batch_tag(self, batch, 0);
    __atomic_store_n(&batch->mask, 0, __ATOMIC_RELEASE); /* first: a thread that vanishes here loses blocks, never doubles them */
    HAK_COUNT(&self->counters, free_batch, 1);
    give(self, batch->slab, batch->word, batch->behind, mask);
    hak_store_release(&self->flying, outer);
    if (HAK_UNLIKELY(outer != NULL)) hak_store_release(&self->flying_mask, outer_mask);
    given(self, count, count + batch->room);
}

void hak_batch_flush(struct hak_heap *self) {
    for (uint64_t left = self->batches; left; left &= left - 1) {
        struct hak_batch *batch = &self->batch[hak_word_first(left)];
        if (batch->mask) hak_batch_flush_one(self, batch);
    }
    self->batches = 0;
}

/* So many of its blocks are HAK_BATCH_BYTES. */
static unsigned room_for(const struct hak_granule *record) {
    return (unsigned)((unsigned __int128)HAK_BATCH_BYTES * record->reciprocal >> 64);
}

/* It is room again under a family's limit, and who waits for that may wait for this thread, which may wait for him. */
static HAK_COLD bool is_awaited(const struct hak_granule *record) {
    struct hak_heap *owner = hak_load_acquire(&((struct hak_granule *)(uintptr_t)record)->owner);
    struct hak_family *family = owner != HAK_WATCHED ? hak_family_of_heap(hak_slab_owner_heap(owner)) : NULL;
    return family && hak_load_relaxed(&family->limit_granules) != 0;
}

/* The lines that the flush will need are fetched meanwhile: the owner's word, the strangers', and the header. */
HAK_INLINE void batch_begin(struct hak_heap *self, struct hak_batch *batch, const struct hak_granule *record,
                            hak_atomic_u64 *word, uint64_t bit) {
    size_t granule = hak_granule_of(record->start);
    struct hak_slab *slab = hak_slab_at(granule);
    unsigned room = room_for(record);
    unsigned behind = hak_slab_behind(granule, word);
    if (batch->mask) hak_batch_flush_one(self, batch);
    bool may_be_awaited = HAK_UNLIKELY(hak_load_relaxed(&hak_family_limited));
    if (room <= 2 || (HAK_UNLIKELY(may_be_awaited) && is_awaited(record))) {
        hak_prefetch_write(hak_slab_remote_word(word, behind));
        __builtin_prefetch(slab);
        give(self, slab, word, behind, bit);
        given(self, 1, room);
        return;
    }
    hak_prefetch_write(hak_slab_remote_word(word, behind));
    __builtin_prefetch(word);
    __builtin_prefetch(slab);
    __atomic_store_n(&batch->word, word, __ATOMIC_RELEASE); /* both, and the mask: as in batch_flush(), the last flush is over */
    __atomic_store_n(&batch->slab, slab, __ATOMIC_RELEASE);
    batch->room = room - 1;
    batch->behind = behind;
    self->batches |= UINT64_C(1) << (batch - self->batch);
    __atomic_store_n(&batch->mask, bit, __ATOMIC_RELEASE);
    hak_batch_tag(self, batch, hak_batch_tag_of(hak_batch_hash(word)));
}

/* One makes way for a new one: by turns, whether it holds something or not (else what is whole already stays for long: 1.04 of the peak of four
 * producers); the first each time where heaps are many, for of many threads most wait, with what they gathered. */
HAK_INLINE struct hak_batch *batch_next(struct hak_heap *self, const hak_atomic_u64 *word) {
    unsigned set = hak_batch_set(hak_batch_hash(word));
    if (HAK_UNLIKELY(hak_heap_crowd() != 0)) return hak_batch_at(self, set, 0);
    unsigned turn = self->batch_turn >> 2 * set & (HAK_BATCH_WAYS - 1);
    self->batch_turn ^= (turn ^ ((turn + 1) & (HAK_BATCH_WAYS - 1))) << 2 * set;
    return &self->batch[set * HAK_BATCH_WAYS + turn];
}

/* The last batches had few blocks each, and so has this word's: it is not worth one. */
static bool may_tell(struct hak_heap *self, const struct hak_granule *record, const hak_atomic_u64 *word) {
    enum { MANY = 4, NAME_SHIFT = 8 };
    HAK_STATIC(sizeof self->freed_to / sizeof *self->freed_to == 1 << (64 - 58) && HAK_BATCH_BYTES / HAK_LETTER_BYTES_MAX == 8);
    if (self->gathered >= MANY * GATHERED_ONE || room_for(record) < 8 || HAK_UNLIKELY(hak_heap_crowd() != 0)) return false;
    unsigned at = (unsigned)(hak_batch_hash(word) >> 58);
    uint32_t name = (uint32_t)((uintptr_t)word / sizeof *word) << NAME_SHIFT | self->flushes;
    if (self->freed_to[at] != name) {
        self->freed_to[at] = name;
        self->freed_count[at] = 0;
    }
    return self->freed_count[at] < MANY && ++self->freed_count[at] <= MANY;
}

/* A thread that frees and never allocates makes no visits: its heap may have been another's, with slabs, mail and what a fork left. */
static HAK_COLD void chores_without_visits(struct hak_heap *self) {
    self->batch_since = 0;
    if (self != hak_self) return;
    if (self->is_survivor) hak_fork_rebuild(self); /* it asks for no slab itself */
    hak_visit_chores(self);
}

/* Of batches that were begun, and blocks told by letter. */
HAK_INLINE void count_since(struct hak_heap *self) {
    enum { SINCE_MAX = 1024 };
    if (HAK_UNLIKELY(++self->batch_since > SINCE_MAX)) chores_without_visits(self);
}

static HAK_NOINLINE void gather(struct hak_heap *self, const struct hak_granule *record, hak_atomic_u64 *word, uint64_t bit) {
    batch_begin(self, batch_next(self, word), record, word, bit);
    count_since(self);
}

void hak_stranger_gather(struct hak_heap *self, const struct hak_granule *record, unsigned index) {
    hak_atomic_u64 *word = &record->words[index / 64];
    struct hak_batch *batch = hak_batch_find(self, word);
    if (batch) hak_batch_add(self, batch, index);
    else gather(self, record, word, UINT64_C(1) << index % 64);
}

static HAK_COLD void free_without(const struct hak_granule *record, hak_atomic_u64 *word, uint64_t bit) {
    size_t granule = hak_granule_of(record->start);
    give(hak_self, hak_slab_at(granule), word, hak_slab_behind(granule, word), bit);
}

void hak_stranger_free_first(struct hak_heap *self, struct hak_heap *owner, const struct hak_granule *record, void *block, unsigned index) {
    hak_atomic_u64 *word = &record->words[index / 64];
    uint64_t bit = UINT64_C(1) << index % 64;
    if (HAK_UNLIKELY(hak_heap_is_none(self))) {
        free_without(record, word, bit);
        return;
    }
    HAK_COUNT(&self->counters, free_stranger, 1);
    if (may_tell(self, record, word) && hak_letter_put(self, owner, block)) count_since(self);
    else gather(self, record, word, bit);
}

void hak_stranger_free(struct hak_heap *self, struct hak_heap *owner, const struct hak_granule *record, void *block, unsigned index) {
    if (!hak_batch_free(self, record, index)) hak_stranger_free_first(self, owner, record, block, index); /* none has no batch */
}

/* --- the owner's side --- */

/* `count` of the program's blocks came back: fires the event once if the countdown is passed. */
static void collected(struct hak_heap *heap, struct hak_slab *slab, uint32_t count) {
    struct hak_row *row = hak_slab_row(slab);
    HAK_COUNT(&heap->counters, collected, count);
    hak_given_taken(heap, row, count);
    if (count < row->countdown) {
        row->countdown -= count;
        return;
    }
    hak_row_arm(row, hak_row_out(row) - count, 0);
    hak_event(heap, slab);
}

static void rest_take(struct hak_heap *heap) {
    for (struct hak_slab *slab; (slab = heap->mail_rest) != NULL;) {
        struct hak_slab *next = hak_load_relaxed(&slab->mail_next), *seen = slab; /* before mailed: then it may be pushed again */
        /* a signal handler that allocates here has read it: it may be in the mailbox once more, and read twice it would come to follow itself */
        if (!__atomic_compare_exchange_n(&heap->mail_rest, &seen, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
        atomic_signal_fence(memory_order_seq_cst);
        HAK_COUNT(&heap->counters, mail_taken, 1);
        if (next) hak_prefetch_write(next); /* a stranger wrote it last: it comes while this one is looked at */
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
    }
}

void hak_mail_take(struct hak_heap *heap) {
    if (hak_load_relaxed(&heap->letters) != 0) hak_letters_read(heap);
    if (hak_load_relaxed(&heap->mail) == 0 && heap->mail_rest == NULL) return;
    if (HAK_UNLIKELY(heap->mail_rest != NULL)) rest_take(heap);
    hak_store_relaxed(&heap->unread, 0);
    uintptr_t head = hak_exchange(&heap->mail, 0);
    if ((head & TAG_MASK) != tag_now()) return; /* the parent's */
    heap->mail_rest = (struct hak_slab *)(head & ~TAG_MASK);
    rest_take(heap);
}
