/* heap.h - a thread's heap: the bins that malloc empties, and what its visits need.
 *
 * Owns:      for each class the bin, the current slab and the list of partly free ones; the mailbox.
 * Borrows:   slabs (slab/slab.h); they stay a heap's own when its thread ends.
 * Threads:   only the owner, the thread whose hak_self it is, but for the mailbox, `state`, `next_dead`, `listed` and
 *            reading counters. A heap without a thread (DEAD) is owned by who made it BUSY.
 * Invariant: a bin's word and base are those of its class's current slab; blocks in the word are clear in
 *            that slab's row and counted in its `out`.
 * Start-up:  a thread that has no heap yet has hak_heap_none, whose bins are all empty: no branch for it. One whose heap
 *            died has hak_heap_gone, a second of that kind, and borrows one for each allocation (heap/birth.c).
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "memory/purge.h"
#include "os/os.h"
#include "rules/counters.h"
#include "slab/slab.h"

/* What malloc reads: up to 64 free blocks, as bits, from `base` on. */
struct hak_bin {
    uint64_t word;
    char *base;
};

enum hak_heap_state { HAK_HEAP_LIVE, HAK_HEAP_DEAD, HAK_HEAP_BUSY };

/* The slow half of a class: where the bin's next word comes from. */
struct hak_shelf {
    struct hak_row *current; /* of the slab in use */
    hak_slab_name partial;  /* slabs with free blocks, doubly linked; the last relisted is first */
    int32_t rare;           /* blocks served by the coarser class so far, above them pages that were opened for it; from HAK_RARE_OFTEN on the
                             * class has earned a slab, and HAK_RARE_BORROWED is added for each block that it borrowed since (odd: it grew). When a thread
                             * ends, what it asked for less often itself is rare again (heap/birth.c) */
    uint64_t handed;        /* blocks put into the bin since the heap was born */
    uint64_t ahead;         /* the same, from what the sampler set: past the highest when a sample is among the blocks */
};

/* A heap borrows two blocks of a class while heaps are few; one whose last thread ended without asking for 32 begins so far below. Where
 * there are many threads, each holding a little of each class, a slab of its own costs pages in each of them: there a class asks often, or
 * makes the coarser one grow, before it has one; and one that only asked often is rare again when it would open pages while it holds little. */
enum { HAK_RARE_BLOCKS = 2, HAK_RARE_AGAIN = 32, HAK_RARE_OFTEN = 1 << 30, HAK_RARE_GREW, HAK_RARE_BORROWED = 2 };
extern hak_atomic_u32 hak_rare_blocks; /* HAK_RARE_BLOCKS while heaps with a thread are few: eight, or four for each processor; else HAK_RARE_ASKS for each */
enum { HAK_RARE_ASKS = 64 };
/* How many threads have heaps, or had, where they are many; else 0. */
HAK_INLINE uint32_t hak_heap_crowd(void) { return hak_load_relaxed(&hak_rare_blocks) / HAK_RARE_ASKS; }

/* What a heap has once classes are split by lifetime: heap/pool.h. All that an allocation reads of its class is in one line:
 * with the sites' bits in a line of their own two waited for each other, half of a split class's price. */
enum { HAK_POOL_SITE_BITS = 8 };
struct HAK_ALIGNED(HAK_LINE) hak_pool {
    struct hak_bin bin[2];                             /* of a split class, whose own bin stays empty; and of its pool */
    uint64_t sites[(1 << HAK_POOL_SITE_BITS) / 64];    /* the second one's: hak_pool_sites, as this heap last saw them */
};
HAK_STATIC(sizeof(struct hak_pool) == HAK_LINE);
struct hak_pools { /* by class */
    struct hak_pool of[HAK_SMALL_CLASS_MAX + 1];
    struct hak_shelf shelf[HAK_SMALL_CLASS_MAX + 1];
};

/* The blocks above 1 KiB of one class that their owner freed last: heap/middle.c. */
enum { HAK_MIDDLE_CLASSES = HAK_CLASS_COUNT - HAK_SMALL_CLASS_MAX - 1 };
enum { HAK_MIDDLE_BLOCKS = 13, HAK_MIDDLE_NUMBERS = 64, HAK_MIDDLE_STEP = 128,
       HAK_MIDDLE_SIZES = HAK_SLAB_BLOCK_BYTES_MAX / HAK_MIDDLE_STEP };
enum { HAK_MIDDLE_RUN = 16, HAK_MIDDLE_ONE_RUN = UINT8_MAX + 1, HAK_MIDDLE_MOST = 256 << 10 };
struct hak_middle {
    union {
        uint16_t state; /* from bit 8 on, frees that found no place since the last malloc: 0, or none finds one until it */
        uint8_t count;  /* its low byte: how many there are */
    };
    uint16_t block_bytes;
    uint32_t ahead;   /* as in hak_shelf */
    uint64_t handed;  /* to the program, since the heap was born */
    uint64_t numbers; /* as bits: each block's number in its slab, modulo 64; no two have the same */
    uintptr_t block[HAK_MIDDLE_BLOCKS]; /* with that number in the address's low bits: hak_middle_block() */
};
HAK_STATIC(sizeof(struct hak_middle) == 2 * HAK_LINE && HAK_MIDDLE_NUMBERS == 64);
HAK_STATIC((HAK_MIDDLE_RUN + 1) * HAK_MIDDLE_ONE_RUN <= UINT16_MAX && HAK_SLAB_BLOCK_BYTES_MAX <= UINT16_MAX);

/* Frees of a class that found their number taken, since `handed` was this. */
struct hak_middle_again {
    uint32_t handed, count;
};

/* The spans of large blocks that their thread freed last, by size in granules: heap/kept.c. */
enum { HAK_KEPT_SIZES = 32, HAK_KEPT_EACH = 4, HAK_KEPT_EACH_MOST = 8 };
struct hak_kept {
    hak_atomic_u32 busy;   /* 1: the heap's thread is at it */
    hak_atomic_u32 thief;  /* the fork epoch: a third thread is, or was in the parent; else 0 */
    hak_atomic_u64 bytes;
    hak_atomic_u64 reserved;
    struct hak_granule *last; /* freed last, and in no row of `record`: who frees and takes by turns waits for no count there */
    uint32_t last_count;      /* its granules; 0: there is none */
    uint8_t count[HAK_KEPT_SIZES];
    uint8_t each;    /* as many of a size as the last look allowed; 0 before it */
    uint8_t steps;   /* what may be kept is more by so many */
    uint8_t refused; /* not kept for want of room, and not missed yet */
    uint32_t missed; /* since the last look at how soon so many were */
    uint32_t looked_ms, rose_ms;
    struct hak_granule *record[HAK_KEPT_SIZES][HAK_KEPT_EACH_MOST];
};

/* In middle_lent, while heaps are many and to the first visit after it: middle_at may name a coarser class for a rare one (heap/borrow.h). */
#define HAK_MIDDLE_SERVED (UINT64_C(1) << 63)

/* Blocks of one word of another heap's slab, to be given back in one go. */
enum { HAK_BATCHES = 64 };
struct hak_batch {
    hak_atomic_u64 *word; /* the owner's */
    uint64_t mask;        /* 0: nothing */
    struct hak_slab *slab;
    uint32_t room;   /* blocks until it is flushed */
    uint32_t behind; /* lines from the owner's row to the strangers' */
};

/* Blocks that strangers freed, by their addresses: heap/letters.h. */
enum { HAK_LETTER_LINES = 32, HAK_LETTER_BLOCKS = 8, HAK_LETTER_BYTES_MAX = HAK_SMALL_BYTES_MAX };
struct HAK_ALIGNED(HAK_LINE) hak_letter {
    _Atomic(char *) block[HAK_LETTER_BLOCKS]; /* NULL: none */
};
HAK_STATIC(sizeof(struct hak_letter) == HAK_LINE);

struct hak_family;
struct HAK_ALIGNED(HAK_LINE) hak_heap {
    struct hak_bin bin[HAK_SMALL_CLASS_MAX + 1]; /* of the small classes; first: a class's bytes are its bin's offset. hak_bin_at() */
    uint16_t class_bytes[HAK_SMALL_CLASS_MAX]; /* by (size - 1) / 16: of the small class that serves it; 0: a heap that is none */
    uint64_t tick;                       /* hak_os_ticks() at which the sweep is due */
    int64_t middle_in;                   /* bytes of blocks above 1 KiB to keep, less those taken, until what is kept is looked at; 0 at first */
    int32_t clock_in, clock_step;        /* bytes until chores, a visit being HAK_VISIT_CLOCK; 0: something waits */
    int32_t clock_rest;                  /* what clock_in would be more by, if batches did not wait for the next visit */
    uint32_t at_hand_most;               /* a visit leaves so many blocks in the bin at most, + 1; 0: all that it found. hak_heap_hurry() */
    uint64_t batches;                    /* which batches hold something, or more, as bits */
    uint64_t middle_lent;                /* bit c: class c above 1 KiB has no slabs of its own, its pair serves it (hak_class_serving); HAK_MIDDLE_SERVED */
    int64_t free_sum;                    /* its part of hak_purge.free_bytes that is not added yet, with what middle_in is below middle_from */
    int64_t middle_from;                 /* what middle_in was when free_sum last had all of it: hak_middle_settle() */
    int64_t given_sum;                   /* the same of hak_purge.given_bytes */
    uint64_t hurried;                    /* hak_os_ticks() when a free last called for it */
    uint64_t ticks_seen;                 /* hak_os_ticks() when it was last read */
    uint64_t opened_bytes;               /* of slabs, that were handed out for the first time since the heap was made */
    hak_atomic_u32 epoch;                /* the process it was last used in, see hak_epoch */
    uint32_t index;                      /* its name in the list of dead heaps - 1 */
    uint64_t middle_ms;                  /* when the kept blocks last went back; at first: when the clock was first read */
    hak_slab_name pending;               /* slabs whose events met a claim */
    struct hak_watch *watch;             /* watch/sampler.c's, NULL until this heap was sampled */
    uint32_t follows;                    /* hak_hooks.generation under which the numbers named `ahead` were set */
    uint64_t large_ahead;                /* bytes of large blocks, from what the sampler set: as ahead in hak_shelf */
    uintptr_t stack_top;                 /* of its thread: hak_os_stack_top(), for heap/key.h */
    hak_atomic_u64 split;                /* bit c - 1: small class c is split; its bin is empty, its pool has its word.
                                          * All are set in hak_heap_none and hak_heap_gone: malloc's slow path asks once for both */
    _Atomic(struct hak_pools *) pools;   /* NULL until a class was split */
    uint32_t split_seen;                 /* hak_split_version, when it last followed */
    const void *from_address;            /* who asked, when it was not malloc's caller; NULL: look at the stack */
    uintptr_t from_stack;
    struct hak_counters counters;
    HAK_ALIGNED(HAK_LINE) _Atomic(uintptr_t) mail; /* slabs to which strangers have freed, first | epoch tag */
    hak_atomic_u32 state;                                  /* enum hak_heap_state */
    hak_atomic_u32 next_dead;                              /* index + 1 */
    hak_atomic_u32 listed;                                 /* the epoch: in its list of dead heaps, or about to be; else 0 or stale */
    hak_atomic_u32 unread;                                 /* about how many slabs were posted while it is DEAD */
    /* the owner's, and rarely wanted */
    uint32_t is_ahead;          /* 1: a sample is among the blocks that were just put into the bin */
    uint32_t is_survivor;       /* 1: its thread forked, and vanished threads' heaps wait for it */
    uint32_t may_make_room;     /* 1: of some slab in use nothing was held when its event came */
    uint32_t hurry_visits;      /* until at_hand_most is 0 again, in HAK_HURRY_DUE-ths */
    uint32_t served_from[HAK_SMALL_CLASS_MAX / 8 + 1]; /* by class / 8: what it had handed out when it last had nothing for a class that it serves */
    uint32_t is_short;          /* 1: all that is free is being given back, because memory is short */
    struct hak_heap *left_mail; /* a dead heap that this one's thread posted to, and did not deliver */
    struct hak_slab *mail_rest; /* of the mail that is being taken: whoever leaves that by a longjmp finds it again */
    hak_atomic_u64 kept_ms;     /* when `kept` last went back; 0: never */
    hak_atomic_u64 thread;      /* while LIVE: whose it is by the kernel's number; above it, how often it was given. 0 below: not known */
    /* each in a line of its own: owners read the first before they open a page, and strangers the second each time */
    HAK_ALIGNED(HAK_LINE) hak_atomic_u32 letters;       /* bit i: letter[i] may have something */
    HAK_ALIGNED(HAK_LINE) hak_atomic_u32 takes_letters; /* 1: there is a thread that reads them */
    hak_atomic_u32 is_instance;            /* 1: one of a family's, for ever: heap/family.h. No thread's hak_self, and in no list of dead heaps */
    _Atomic(struct hak_family *) family;   /* of an instance; NULL: it waits for the next family */
    _Atomic(struct hak_heap *) home;       /* of an instance that a thread has: that thread's own heap */
    hak_atomic_u32 slab_count;             /* of an instance: so many slabs are its own */
    hak_atomic_u32 has_instances;          /* of a thread's own heap: there may be some whose home it is */
    struct hak_heap *of_malloc;            /* front/secure.c's: the instance that malloc last used; NULL: none */
    _Atomic(struct hak_quarantine *) quarantine; /* heap/secure.c's; NULL: nothing was freed under the secure level */
    uint64_t random;                       /* heap/secure.c's */
    uint32_t is_refused;                   /* of an instance: 1: the last slab that it wanted would have exceeded the family's limit */
    struct hak_rush rush;
    int32_t gathered;    /* blocks of a batch, on an average of the last */
    uint8_t flushes;     /* how often batches were flushed */
    uint8_t had_letters; /* 1: it was told of a block once */
    HAK_ALIGNED(HAK_LINE) struct hak_shelf shelf[HAK_CLASS_COUNT]; /* the small classes first: */
    /* from the others on not touched by a thread that has little to do, which needs HAK_HEAP_FIRST_BYTES */
    struct hak_bin middle_bin[HAK_MIDDLE_CLASSES];
    uint32_t handed_due[HAK_SMALL_CLASS_MAX + 1]; /* a class stays earned if shelf[].handed is HAK_RARE_AGAIN more at its thread's end */
    uint64_t made_room[(HAK_SHELF_COUNT + 63) / 64]; /* by shelf: its slab ended for another's sake since middle_ms */
    uint32_t scarce_from[HAK_SMALL_CLASS_MAX + 1]; /* heap/scarce.c, by class: `handed` at the first of so many visits */
    uint8_t scarce[HAK_SMALL_CLASS_MAX + 1];       /* that found few blocks */
    uint8_t grown[HAK_SHELF_COUNT]; /* by shelf: slabs that it cut in new memory since it last turned to a partly free one */
    uint8_t middle_at[HAK_MIDDLE_SIZES]; /* by (size - 1) / 128: which of these serves it, + 1; 0: to be found out, and so after middle_lent changed */
    HAK_ALIGNED(HAK_LINE) struct hak_middle middle_none; /* nothing is ever in it: at 0 */
    struct hak_middle middle[HAK_MIDDLE_CLASSES];
    struct hak_middle_again middle_again[HAK_MIDDLE_CLASSES];
    struct hak_batch batch[HAK_BATCHES]; /* four by a hash of the word: heap/batch.h */
    uint16_t batch_tag[HAK_BATCHES];     /* of its word's hash; 0: none */
    uint32_t batch_turn;                 /* which of the four makes way next: two bits each */
    uint32_t batch_since;                /* batches that were begun, and blocks told by letter, since the last chores */
    struct hak_kept kept;
    uint32_t freed_to[64];    /* words of other heaps' slabs that were freed to since the batches were flushed, by a hash: part of their names, `flushes` */
    uint8_t freed_count[64];  /* blocks of each */
    uint8_t letter_at[16], letter_pause[16]; /* by a hash of the owner: which of its lines was written last; frees until the next is tried */
    _Atomic(struct hak_batch *) flying; /* the batch that is just being flushed, of these blocks: in neither its mask nor the row, for heap/family.c */
    hak_atomic_u64 flying_mask;
    HAK_ALIGNED(HAK_LINE) struct hak_letter letter[HAK_LETTER_LINES];
    uint32_t middle_served_from[HAK_MIDDLE_CLASSES / 4 + 1]; /* as served_from, of the classes above 1 KiB, by (class - the first of those) / 4 */
    uint8_t drawn[HAK_SMALL_CLASS_MAX + 1]; /* heap/secure.h's: the bit of the bin's word that is next, + 1; 0: none yet */
};
enum { HAK_HEAP_FIRST_BYTES = 4096 }; /* a page, and heaps begin with one (heap/birth.c) */
HAK_STATIC(offsetof(struct hak_heap, shelf) + (HAK_SMALL_CLASS_MAX + 1) * sizeof(struct hak_shelf) <= HAK_HEAP_FIRST_BYTES);

/* The library's only thread-local variable. */
extern _Thread_local struct hak_heap *hak_self __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern const struct hak_heap hak_heap_none, hak_heap_gone; /* of a thread that has none yet; of one whose heap died */
#define HAK_HEAP_NOBODY (UINT32_MAX - 1)                   /* the index of both, and no large block's name */

enum { HAK_VISIT_CLOCK = 16 << 10, HAK_TICKS = 1 << 21 }; /* the second of hak_os_ticks(): 0.4 to 2 ms */

/* Something waits for this visit: the clock and, with it, mail; batches; an event put off. */
HAK_INLINE bool hak_heap_chores_wait(struct hak_heap *heap) { return (heap->clock_in -= HAK_VISIT_CLOCK) <= 0; }

/* All that may wait is looked at on the next visit. */
HAK_INLINE void hak_heap_chores_call(struct hak_heap *heap) { heap->clock_in = heap->clock_rest = 0; }

HAK_INLINE bool hak_heap_is_none(const struct hak_heap *heap) { return heap->index == HAK_HEAP_NOBODY; } /* either of them */
HAK_INLINE bool hak_heap_is_gone(const struct hak_heap *heap) { return heap == &hak_heap_gone; }

/* What is free of each class adds up by the heap, what a larger block wastes by the block: the first two heaps have all classes. */
enum { HAK_HEAPS_ALONE = 2 };

/* The class of a size above 1 KiB, or its pair. */
HAK_INLINE size_t hak_heap_middle_class(const struct hak_heap *heap, size_t bytes) {
    HAK_STATIC((int)HAK_MIDDLE_CLASSES <= 64);
    return hak_class_serving(hak_class_of(bytes), heap->middle_lent);
}

/* --- classes and pools: shelf_index below is a class's, or hak_pool_of() a small class --- */

HAK_INLINE bool hak_heap_is_split(struct hak_heap *heap, unsigned class_index) {
    return class_index - 1 < HAK_SMALL_CLASS_MAX && hak_load_relaxed(&heap->split) >> (class_index - 1) & 1;
}
HAK_INLINE struct hak_shelf *hak_shelf_of(struct hak_heap *heap, unsigned shelf_index) {
    if (HAK_LIKELY(shelf_index < HAK_CLASS_COUNT)) return &heap->shelf[shelf_index];
    return &hak_load_acquire(&heap->pools)->shelf[hak_class_plain(shelf_index)];
}
/* Of a class, whether it is split or not. No branch: visits come of all of them. */
HAK_INLINE struct hak_bin *hak_bin_at(struct hak_heap *heap, size_t class_index) {
    size_t rest = offsetof(struct hak_heap, middle_bin) - (HAK_SMALL_CLASS_MAX + 1) * sizeof(struct hak_bin);
    return (struct hak_bin *)(void *)((char *)heap + class_index * sizeof(struct hak_bin) + (class_index > HAK_SMALL_CLASS_MAX ? rest : 0));
}
/* Where the word that was taken for it is. */
HAK_INLINE struct hak_bin *hak_bin_of(struct hak_heap *heap, unsigned shelf_index) {
    if (HAK_UNLIKELY(shelf_index >= HAK_CLASS_COUNT)) return &hak_load_acquire(&heap->pools)->of[hak_class_plain(shelf_index)].bin[1];
    if (HAK_LIKELY(!hak_heap_is_split(heap, shelf_index))) return hak_bin_at(heap, shelf_index);
    return &hak_load_acquire(&heap->pools)->of[shelf_index].bin[0];
}
/* The shelves it has: all loops over them end here. */
HAK_INLINE unsigned hak_shelf_end(struct hak_heap *heap) {
    return hak_load_acquire(&heap->pools) ? HAK_SHELF_COUNT : HAK_CLASS_COUNT;
}

/* --- birth and death (heap/birth.c) --- */

/* Gives the calling thread a heap: a dead one, that which it hinted at if it can be, or a new one. NULL when memory is short, or when
 * nobody will be told of the thread's end; it borrows then: hak_self is hak_heap_gone. `before` is what hak_self was when the caller saw
 * that it has none: a signal handler may have got it one since. */
struct hak_heap *hak_heap_birth(struct hak_heap *before);
/* The calling thread, which has none, freed a block of that dead heap; true: the last such block was its, too. */
bool hak_heap_hint(struct hak_heap *dead);
/* As a birth, that heap or none: false when it is not dead. It stays in the list of dead heaps while it lives. */
bool hak_heap_adopt(struct hak_heap *before, struct hak_heap *dead);
/* The thread ends: its heap is given up as it is. Runs as a thread-key destructor. It gets none again: */
void hak_heap_death(struct hak_heap *heap);
/* whoever allocates after that borrows one, and gives it back at once, for its end may not be told a second time. */
struct hak_heap *hak_heap_borrow(void);
void hak_heap_give_back(struct hak_heap *heap);
/* The heap with index name - 1; NULL: there is none. */
struct hak_heap *hak_heap_named(uint32_t name);
enum { HAK_HEAPS_MAX = 49152 }; /* at a time: each thread that allocates has one, and each of families one more; without one malloc fails */
/* Calls a function for each heap there is; until it gives true, for those that are no instances, without touching these. */
typedef bool hak_heap_look_function(struct hak_heap *heap, void *context);
void hak_heap_each(void (*function)(struct hak_heap *heap, void *context), void *context);
void hak_heap_each_own(hak_heap_look_function *function, void *context);

/* Is there a dead heap to take? It may be a living one that stayed in the list. */
bool hak_heap_dead_any(void);
/* Takes a heap off the list of dead ones, as BUSY; NULL when there is none free. Give it back after. */
struct hak_heap *hak_heap_dead_take(void);
/* The first of the list, as BUSY, where it is if it can be: who finds none in the list makes a heap, which stays for ever. To be given back. */
struct hak_heap *hak_heap_dead_first(void);
/* Nobody is to ask any more whether its thread is still there. */
void hak_heap_unstamp(struct hak_heap *heap);
/* In a forked child, after the epoch: heaps made from here on are of another process, and no list of dead heaps is valid. */
void hak_heap_new_process(void);
/* A BUSY heap goes to the list as DEAD. */
void hak_heap_dead_give(struct hak_heap *heap);
uint32_t hak_heap_living(void); /* about how many heaps have a thread, 1 at least */
void hak_heap_crowd_look(uint64_t now_ms); /* where heaps are many: are they still? Now and then; any thread */
/* A heap that stayed in the list while it was BUSY becomes DEAD again; mail that came meanwhile is taken in. */
void hak_heap_dead_unclaim(struct hak_heap *heap);
/* May the one have the other's slabs? Ordinary heaps, or instances of one family. */
HAK_INLINE bool hak_heap_is_kin(struct hak_heap *one, struct hak_heap *other) {
    return hak_load_relaxed(&one->is_instance) == hak_load_relaxed(&other->is_instance) &&
           hak_load_relaxed(&one->family) == hak_load_relaxed(&other->family);
}
/* Makes a particular dead heap BUSY; false if it is not DEAD now. */
bool hak_heap_dead_claim(struct hak_heap *heap);
/* A new heap for a family, BUSY; NULL: memory is short, or three quarters of all places are families'. It begins to be a thread's, or a dead one
 * does: heap/family.c says whose. */
struct hak_heap *hak_heap_instance_new(bool is_mallocs); /* these may have all: without one a thread has no malloc (the secure level) */
/* Of one that is nobody's and has nothing, BUSY: all pages but its first go back to the kernel. */
void hak_heap_instance_shrink(struct hak_heap *heap);
extern hak_atomic_u64 hak_handed_ended[HAK_CLASS_COUNT]; /* blocks that these had handed out; at 0, bytes */
/* The index of the next new heap, if no other thread makes one meanwhile. */
uint32_t hak_heap_next_index(void);
void hak_heap_instance_begin(struct hak_heap *heap);
/* All that a heap has taken out of its slabs, or was told of, goes back to them; the caller owns it. */
void hak_heap_put_back(struct hak_heap *heap);

/* front/start.c sets it: registers the thread so that hak_heap_death runs at its end. False: it cannot. */
extern bool (*hak_heap_on_birth)(struct hak_heap *heap);

/* Has somebody posted slabs to it, at a glance? gcc keeps an atomic load out of the comparison, as in front/fast.h. */
HAK_INLINE bool hak_heap_has_mail(const struct hak_heap *heap) {
#ifdef __SANITIZE_THREAD__
    return hak_load_relaxed(&heap->mail) != 0;
#else
    return *(const uintptr_t *)(const void *)&heap->mail != 0;
#endif
}

/* --- visits (heap/visit.c) --- */

/* A block of the class (1 to HAK_CLASS_COUNT - 1), its bin being empty, for a caller who asked for `bytes`: first, for it
 * stays in the register in which malloc has it, and only hooks look at it. When memory is short it is what
 * hak_heap_on_shortage gives, which front/malloc.c sets. */
extern void *(*hak_heap_on_shortage)(size_t bytes, struct hak_heap *heap, unsigned class_index);
void *hak_visit(size_t bytes, struct hak_heap *heap, unsigned class_index);
/* A thread's own heap has no slab of the class, and is not to have any: front/secure.c sets it, under the secure level; else NULL. */
extern void *(*hak_heap_apart)(size_t bytes, struct hak_heap *heap);
/* The same for any class or pool, split or not. */
void *hak_visit_any(size_t bytes, struct hak_heap *heap, unsigned shelf_index);
/* Learn's: the class or pool has turned to another slab, new or partly free, and its first block is `block`, for who
 * called from `address` with that stack pointer. */
enum hak_turn { HAK_TURN_NONE, HAK_TURN_PARTIAL, HAK_TURN_NEW };
typedef void hak_heap_slab_function(struct hak_heap *heap, struct hak_row *row, enum hak_turn turn, const void *block,
                                    const void *address, uintptr_t stack);
extern hak_heap_slab_function *hak_heap_on_slab;

/* What every slow path may do first: mail, pending events, the batch, a child's first steps, the clock. */
void hak_visit_chores(struct hak_heap *heap);
/* When hak_heap_chores_wait(): batches, and all else if it is due. */
void hak_visit_chores_due(struct hak_heap *heap);

/* --- events (heap/event.c) --- */

/* --- blocks above 1 KiB (heap/middle.c) --- */

HAK_INLINE struct hak_middle *hak_middle_of(struct hak_heap *heap, size_t class_index) {
    size_t offset = offsetof(struct hak_heap, middle) - (HAK_SMALL_CLASS_MAX + 1) * sizeof(struct hak_middle);
    struct hak_middle *middle = (struct hak_middle *)(void *)((char *)heap + class_index * sizeof *middle + offset);
    HAK_SAME(middle); /* one register: gcc would make each field's address of heap and class again */
    return middle;
}
/* For a size above 1 KiB; or of nothing. */
HAK_INLINE struct hak_middle *hak_middle_for(struct hak_heap *heap, size_t bytes) {
    HAK_STATIC(offsetof(struct hak_heap, middle) == offsetof(struct hak_heap, middle_none) + sizeof(struct hak_middle));
    size_t at = heap->middle_at[(bytes - 1) / HAK_MIDDLE_STEP];
    struct hak_middle *middle = (struct hak_middle *)(void *)((char *)heap + at * sizeof *middle + offsetof(struct hak_heap, middle_none));
    HAK_SAME(middle); /* as above */
    return middle;
}
/* The class of what is kept there. */
HAK_INLINE unsigned hak_middle_class(const struct hak_heap *heap, const struct hak_middle *middle) {
    size_t offset = (size_t)((const char *)middle - (const char *)&heap->middle_none); /* of which it is the last small one */
    return (unsigned)(offset / sizeof *middle) + HAK_SMALL_CLASS_MAX;
}
HAK_INLINE unsigned hak_middle_count(const struct hak_middle *middle) {
    HAK_STATIC(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return __atomic_load_n(&middle->count, __ATOMIC_RELAXED);
}
/* The owner frees a block of this class; misuse of `function`, if no live one starts there. */
void hak_middle_free(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function, unsigned class_index);
/* Is the block free, and kept here? */
bool hak_middle_has(struct hak_heap *heap, unsigned class_index, const void *block);
/* Before the slab takes in what strangers gave back: a block that both they and the owner freed ends the program. */
void hak_middle_collect(struct hak_heap *heap, struct hak_slab *slab);
/* What a heap may keep for itself of blocks, and of spans, while free memory is above its bound and has its grace: all heaps together no more
 * than the bound, for their threads may wait from then on, and nobody else can use it. */
uint64_t hak_heap_keep_most(void);
/* What was kept, or taken, since the last time is in free_sum. What was taken lets no more be kept unseen than after a look. */
HAK_INLINE void hak_middle_settle(struct hak_heap *heap) {
    int64_t kept = heap->middle_from - heap->middle_in;
    heap->middle_from = heap->middle_in;
    atomic_signal_fence(memory_order_seq_cst); /* first, as in hak_free_flush() */
    heap->free_sum += kept;
    if (heap->middle_in > HAK_MIDDLE_MOST) heap->middle_in = heap->middle_from = HAK_MIDDLE_MOST;
}
/* All that is kept goes back to the slabs; of one class. */
void hak_middle_flush(struct hak_heap *heap);

/* A kept block. The sizes of all these classes, and where their slabs' first blocks begin, are multiples of 128 bytes (test/unit/class.c). */
HAK_INLINE char *hak_middle_block(const struct hak_middle *middle, unsigned i) {
    return (char *)(__atomic_load_n(&middle->block[i], __ATOMIC_RELAXED) & -(uintptr_t)HAK_MIDDLE_NUMBERS);
}

/* The block is about to go out: one that strangers freed, too, and nobody has read it yet, ends the program. */
void hak_middle_look(const void *block);
void hak_middle_look_last(const struct hak_middle *middle, unsigned count); /* at the block that hak_middle_take() hands out */

/* The block of a class above 1 KiB that was freed last, one of `count` (not 0); *is_sample: the sampler wants it. Fork:
 * count first, then it is out. */
HAK_INLINE void *hak_middle_take(struct hak_heap *heap, struct hak_middle *middle, unsigned count, bool *is_sample) {
    unsigned last = count - 1;
    __atomic_store_n(&middle->state, (uint16_t)last, __ATOMIC_RELEASE); /* the run ends */
    hak_owner_add(&middle->handed, 1);
    heap->middle_in += middle->block_bytes;
    uintptr_t block = middle->block[last];
    middle->numbers = hak_word_without(middle->numbers, block);
    block &= -(uintptr_t)HAK_MIDDLE_NUMBERS;
    HAK_SAME(block); /* before the flag */
    *is_sample = hak_owner_passes_u32(&middle->ahead, 1);
    return (void *)block;
}
/* The block that was just taken is kept again: somebody had another for the program. */
void hak_middle_take_back(struct hak_heap *heap, unsigned class_index, void *block);

/* The countdown of a slab of this heap has ended. */
void hak_event(struct hak_heap *heap, struct hak_slab *slab);
void hak_event_pending(struct hak_heap *heap);
/* Ends a slab that is in no list and all of whose blocks are free: now, or when the third thread that claims it is done. */
void hak_event_finish(struct hak_heap *heap, struct hak_slab *slab);
/* Where the next span of `count` granules would be of memory that is not resident, or is to be (`takes_clean`): a slab in use of which nothing is held
 * ends, if there is one.
 * Of each class one in purge_delay_ms, but for those that hold much: classes that take turns with a few blocks each would cut one at each turn.
 * Where it did, or HAK_NO_GRANULE. */
size_t hak_event_make_room(struct hak_heap *heap, size_t count, bool takes_clean);
/* Memory is short: full slabs of which anything is free are in their lists again, though less than their share is: the heap's, and of those without
 * a thread that it may take them from. */
void hak_event_relist(struct hak_heap *heap);

/* Gives a class's word back to its slab, and lets the slab go to the list it belongs to. */
void hak_bin_put_back(struct hak_heap *heap, unsigned shelf_index);
/* Its bin keeps the lowest `keep` of its blocks; the others go back into the row. */
void hak_bin_trim(struct hak_heap *heap, unsigned shelf_index, unsigned keep);
/* Free memory is above its bound, and may stay there for the grace; or there is some, and visits are rare. Who allocates from what is at hand would
 * not look at the clock for long, or never again: next to nothing is at hand then, and the next HAK_HURRY_VISITS look. */
enum { HAK_AT_HAND_ASKED = 66, HAK_HURRY_FREE_LEAST = 1 << 20, HAK_HURRY_VISITS = 512, HAK_HURRY_DUE = 8 };
HAK_INLINE bool hak_heap_is_slow(const struct hak_heap *heap) { /* by the last look at the clock */
    return heap->clock_step == HAK_VISIT_CLOCK && hak_load_relaxed(&hak_purge.free_bytes) >= HAK_HURRY_FREE_LEAST;
}
void hak_heap_hurry(struct hak_heap *heap);
void hak_heap_hurried(struct hak_heap *heap, unsigned shelf_index); /* at a visit's end */
/* Who just freed may visit no more. at_hand_most is HAK_AT_HAND_ASKED: he gave pages back, in the middle of something. */
void hak_heap_hurry_freed(struct hak_heap *heap);
HAK_INLINE void hak_heap_freed(struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_purge.over_since_ms) != 0) || HAK_UNLIKELY(heap->at_hand_most == HAK_AT_HAND_ASKED)) hak_heap_hurry_freed(heap);
}
void hak_list_push(struct hak_heap *heap, struct hak_slab *slab);
void hak_list_remove(struct hak_heap *heap, struct hak_slab *slab);

/* --- strangers (heap/mail.c) --- */

/* Of the row's blocks so many that strangers had freed were taken in. */
void hak_given_taken(struct hak_heap *heap, const struct hak_row *row, uint32_t count);
/* Frees a block of another heap's slab, the one with that index there. `self` may be hak_heap_none; `owner` as the record names it. */
void hak_stranger_free(struct hak_heap *self, struct hak_heap *owner, const struct hak_granule *record, void *block, unsigned index);
/* The same; its word has no batch. */
void hak_stranger_free_first(struct hak_heap *self, struct hak_heap *owner, const struct hak_granule *record, void *block, unsigned index);
/* With others of its word; `self` is none of these. */
void hak_stranger_gather(struct hak_heap *self, const struct hak_granule *record, unsigned index);
void hak_batch_flush(struct hak_heap *self);
/* Reads what this heap's thread posted last to a dead heap, and nobody has read. */
void hak_mail_left(struct hak_heap *self);
/* Reads what was posted to a heap if that is dead. */
void hak_mail_of_dead(struct hak_heap *heap);
HAK_INLINE bool hak_mail_any(struct hak_heap *heap) { return (hak_load_relaxed(&heap->mail) | hak_load_relaxed(&heap->letters)) != 0; }
/* Takes in all mail, and letters. */
void hak_mail_take(struct hak_heap *heap);

/* --- the clock (heap/sweep.c) --- */

/* Looks at the clock, sweeps if that is due, and says when to look again. */
void hak_sweep_clock(struct hak_heap *heap);
/* Upper layers' clock: called on a visit, at most once per 20 ms in the process; may not allocate. NULL: nobody listens. */
extern void (*hak_sweep_on_tick)(uint64_t now_ms), (*hak_sweep_on_pools)(uint64_t now_ms);
/* Looks at every slab and span; `all`: returns all free pages, else those that are cold. Gives bytes. */
size_t hak_sweep_all(bool all);
/* Free memory broke its bound: returns spans, and if that is not enough pages that slabs have counted. */
void hak_sweep_excess(void);
/* What strangers freed breaks the bound: some of the slabs that wait for their owner give back their free pages. */
void hak_sweep_given(void);
/* What a heap keeps, and its bins, goes back to the slabs, and mail is read. */
void hak_heap_empty(struct hak_heap *heap);
/* Gives back whatever this heap and the dead ones can: hak_collect(), malloc_trim(). */
size_t hak_heap_collect(struct hak_heap *heap);

/* --- fork (heap/fork.c) --- */

/* In a child the fork page reads 0: the epoch moves on at the first slow path. Cheap when nothing happened.
 * Any thread; `heap` is the calling thread's. */
void hak_fork_child(struct hak_heap *heap);
/* fork's handler, in a thread that has no heap; a heap was born. */
void hak_fork_without_heap(void);
void hak_fork_born(struct hak_heap *heap);
HAK_INLINE bool hak_fork_happened(struct hak_heap *heap) { return hak_load_relaxed(hak_region.fork_page) != hak_load_relaxed(&heap->epoch); }
HAK_INLINE void hak_fork_check(struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_fork_happened(heap))) hak_fork_child(heap);
}
/* The thread that forked makes the heaps of vanished threads usable again, before it asks the kernel for more. */
void hak_fork_rebuild(struct hak_heap *survivor);

/* What the slabs of the process hold, class by class: for statistics. */
struct hak_census {
    uint64_t slabs[HAK_CLASS_COUNT], handed[HAK_CLASS_COUNT], live[HAK_CLASS_COUNT];
    struct hak_counters counters;
    uint64_t heap_count, dead_heap_count;
};
void hak_census_take(struct hak_census *census);
/* Of the slabs what is resident, and what pages less than a quarter in use hold beside their blocks. A system call for each slab. */
struct hak_census_pages {
    uint64_t resident_bytes[HAK_CLASS_COUNT], sparse_bytes[HAK_CLASS_COUNT];
};
void hak_census_pages(struct hak_census_pages *pages);

#endif
