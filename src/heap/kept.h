/* kept.h - the spans of up to 2 MiB that a thread freed last, for its next blocks of that size, or a quarter less.
 *
 * They stay used in the chunk words, so that free and malloc of a size touch no word that other threads share: a record
 * and the heap's own list. Neither makes an atomic operation, which would wait for all that the program wrote before.
 * The list is its thread's, which says that it is at it and then looks for a thief. A thief, who gives back what an idle
 * thread keeps, says that he is one, lets every thread pass a barrier, and then looks whether the thread is at it. One of
 * them sees the other, and leaves: the thread does without, the thief comes again. The barrier is the kernel's
 * (membarrier), so that the thread needs none; where there is none, nothing is stolen.
 *
 * Owns:      records; `bytes` of their spans, and `reserved`: what is counted as free memory for them.
 * Threads:   the heap's owner; hak_kept_steal() any.
 * Invariant: reserved >= bytes. A span in the list is used in its chunk, has no owner, and is kept under this heap's name.
 *            Is it not when it is wanted, then two threads have freed it at once.
 * Limits:    four of a size, 3 MiB a heap. One and 1 MiB more, up to five, each time that 1,024 blocks within 64 milliseconds come from the
 *            chunk words while as many were refused for want of room; half of that with each of the sweep's ticks from a second after
 *            it on. Eight and 12 MiB in a rush (memory/rush.h), and all five after it; its part of 3 MiB where heaps are many
 *            (heap/birth.c), 64 KiB at least, never over the bound on free memory, but in its grace by the heap's part, and, but in a rush, not
 *            while memory would be touched for the first time instead (hak_kept_make_room): a vector that grows frees sizes that it never
 *            asks for again.
 * Measured:  two threads, 32 to 512 KiB, time as a share of 2 MiB a heap, and peak MiB: 3 MiB 0.83, 33.7; with a quarter less
 *            served, too, 0.71, 34.4; 4 MiB 0.70, 35.6; 8 MiB, eight of a size, 0.54, 43.4.
 *            Later, a million rounds, ns and peak MiB: 3 MiB 117, 36.5; 6 MiB 62, 39.8; 8 MiB 48, 42.0; from 3 to 8 MiB by steps of
 *            4,096 misses 67, 41.0, of 1,024 59, 42.0 (100,000 rounds 157 and 127; 158 without steps). A block from the chunk words waits
 *            for all that the program wrote: a dozen atomic operations.
 *            malloc and free of 2 MiB by turns, ns: 18.6 with all in rows, where free's record says which count, the count where the record
 *            is stored, and malloc's load waits for that store; 11.9 with the last apart (half of it instructions and looks at the clock).
 * Rejected:  what most is kept of goes back instead of what came last: a seventh fewer misses, no time. Claiming each span by CAS: docs/experiments.md.
 */
#ifndef HAK_HEAP_KEPT_H
#define HAK_HEAP_KEPT_H

#include "heap/heap.h"
#include "memory/large.h"

enum { HAK_KEPT_BYTES_MAX = 3 << 20, HAK_KEPT_BYTES_RUSH = 12 << 20, HAK_KEPT_BYTES_CROWDED = HAK_GRANULE_BYTES };
enum { HAK_KEPT_CLOCK = HAK_VISIT_CLOCK / 8 }; /* a block of the list takes as long as some of a visit's; where calls are slow each looks */
enum { HAK_KEPT_STEP_BYTES = 1 << 20, HAK_KEPT_STEPS_MAX = 5, HAK_KEPT_MISSED_LOOK = 1024, HAK_KEPT_REFUSED_MAX = 32 };

/* The name of the heap's large blocks. */
HAK_INLINE uint32_t hak_kept_name(const struct hak_heap *heap) { return heap->index + 1; }

/* A block was ended (hak_large_end), or is its heap's own; false: not kept, and the caller's still. */
bool hak_kept_give(struct hak_heap *heap, struct hak_granule *record);
void hak_kept_flush(struct hak_heap *heap);
/* A span of so many granules is about to be taken: what is kept goes back if the span would be of memory that was not touched yet,
 * and what is kept is half of it at least. Blocks that grow are kept in sizes that nobody asks for again. */
void hak_kept_make_room(struct hak_heap *heap, size_t count);
/* A block of a size that might have been kept comes from the chunk words. */
void hak_kept_missed_much(struct hak_heap *heap);
HAK_INLINE void hak_kept_missed(struct hak_heap *heap) {
    struct hak_kept *kept = &heap->kept;
    if (kept->refused == 0) return;
    kept->refused--;
    if (HAK_UNLIKELY(++kept->missed >= HAK_KEPT_MISSED_LOOK)) hak_kept_missed_much(heap);
}
/* With the sweep's ticks, purge_delay_ms apart. */
void hak_kept_tick(struct hak_heap *heap, uint64_t now_ms);
/* What its thread did says nothing of the next one's. */
HAK_INLINE void hak_kept_forget(struct hak_heap *heap) {
    struct hak_kept *kept = &heap->kept;
    if (kept->steps | kept->refused | kept->missed) kept->steps = kept->refused = 0, kept->missed = 0; /* else a page that nobody wrote would be */
}
/* Fork: what a heap keeps whose thread vanished, perhaps in the middle of it. */
void hak_kept_flush_vanished(struct hak_heap *heap);
/* Any thread: gives back what another heap keeps, unless its thread is at it just now. */
void hak_kept_steal(struct hak_heap *heap);

/* Is the list the thread's? False: there is a thief, and hak_kept_stolen_from() has to be called; it leaves, and is always false. */
bool hak_kept_stolen_from(struct hak_heap *heap);
HAK_INLINE bool hak_kept_begin(struct hak_heap *heap) {
    hak_store_relaxed(&heap->kept.busy, 1);
    atomic_signal_fence(memory_order_seq_cst); /* the processor's part is the thief's barrier */
    return HAK_LIKELY(hak_load_acquire(&heap->kept.thief) == 0);
}
/* The same; what is left is left already. */
HAK_INLINE bool hak_kept_enter(struct hak_heap *heap) { return hak_kept_begin(heap) || hak_kept_stolen_from(heap); }
HAK_INLINE void hak_kept_leave(struct hak_heap *heap) { hak_store_release(&heap->kept.busy, 0); } /* pairs with the thief's look */

/* The usual way of hak_kept_give(), for what was kept before; in the list or not at all. `words`: the record's, with the heap's name.
 * Any of these stores may be the last, by a fork or by who leaves a handler by longjmp: a span is nowhere twice, and in a row before it is counted. */
HAK_INLINE bool hak_kept_push(struct hak_heap *heap, struct hak_granule *record, uint32_t count, uint64_t words) {
    struct hak_kept *kept = &heap->kept;
    uint32_t last_count = kept->last_count;
    uint64_t bytes = hak_load_relaxed(&kept->bytes) + ((uint64_t)count << HAK_GRANULE_SHIFT);
    unsigned n = kept->count[count - 1];
    if (HAK_UNLIKELY(n + (last_count == count) >= kept->each) || HAK_UNLIKELY(bytes > hak_load_relaxed(&kept->reserved))) return false;
    if (last_count != 0) { /* there is room for it: there was when it came, and what was there since was taken */
        __atomic_store_n(&kept->last_count, 0, __ATOMIC_RELEASE);
        atomic_signal_fence(memory_order_seq_cst);
        struct hak_granule *last = kept->last;
        last_count = (uint32_t)hak_large_granules(last); /* a handler may have freed another meanwhile */
        n = kept->count[last_count - 1];
        if (HAK_LIKELY(n < HAK_KEPT_EACH_MOST)) {
            kept->record[last_count - 1][n] = last;
            __atomic_store_n(&kept->count[last_count - 1], (uint8_t)(n + 1), __ATOMIC_RELEASE);
        }
    }
    hak_large_words_set(record, words | HAK_LARGE_KEPT);
    hak_store_relaxed(&kept->bytes, bytes);
    kept->last = record;
    __atomic_store_n(&kept->last_count, count, __ATOMIC_RELEASE);
    return true;
}

/* The last span of a row, taken from the list. */
HAK_INLINE struct hak_granule *hak_kept_pop(struct hak_kept *kept, size_t count) {
    unsigned n = kept->count[count - 1] - 1u;
    struct hak_granule *record = kept->record[count - 1][n]; /* first: a handler that frees one puts it there */
    __atomic_store_n(&kept->count[count - 1], (uint8_t)n, __ATOMIC_RELEASE); /* before it is a block: fork */
    return record;
}
HAK_INLINE struct hak_granule *hak_kept_pop_last(struct hak_kept *kept) {
    struct hak_granule *record = kept->last;
    __atomic_store_n(&kept->last_count, 0, __ATOMIC_RELEASE);
    return record;
}
/* A span of *count granules, at most HAK_KEPT_SIZES, or of up to a quarter more, which *count then says; NULL: none is kept. */
HAK_INLINE struct hak_granule *hak_kept_pop_near(struct hak_kept *kept, size_t *count) {
    size_t most = *count + *count / 4, last = kept->last_count;
    if (HAK_LIKELY(*count == last)) return hak_kept_pop_last(kept);
    if (most > HAK_KEPT_SIZES) most = HAK_KEPT_SIZES;
    for (size_t near = *count; near <= most; near++) {
        if (near != last && kept->count[near - 1] == 0) continue;
        *count = near;
        return near == last ? hak_kept_pop_last(kept) : hak_kept_pop(kept, near);
    }
    return NULL;
}
/* It is not kept under this heap's name any more; it does not return, but may be called as the last thing a function does. */
void *hak_kept_lost(struct hak_granule *record);
/* What was taken from the list as a block; what it holds is old. Begun before, and left. */
HAK_INLINE void *hak_kept_taken(struct hak_heap *heap, struct hak_granule *record, size_t count, size_t bytes) {
    struct hak_kept *kept = &heap->kept;
    hak_store_relaxed(&kept->bytes, hak_load_relaxed(&kept->bytes) - ((uint64_t)count << HAK_GRANULE_SHIFT));
    if (HAK_UNLIKELY(!hak_large_kept_by(record, hak_kept_name(heap)))) return hak_kept_lost(record);
    void *block = hak_large_again(record, hak_kept_name(heap), bytes);
    hak_kept_leave(heap);
    return block;
}
/* A block of `count` granules at most HAK_KEPT_SIZES, or up to a quarter more; NULL: none is kept. */
HAK_INLINE void *hak_kept_take(struct hak_heap *heap, size_t count, size_t bytes) {
    if (HAK_UNLIKELY(!hak_kept_enter(heap))) return NULL;
    struct hak_granule *record = hak_kept_pop_near(&heap->kept, &count);
    if (HAK_LIKELY(record != NULL)) return hak_kept_taken(heap, record, count, bytes);
    hak_kept_leave(heap);
    return NULL;
}

#endif
