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
 *            it on. Eight and 12 MiB in a rush (memory/rush.h), and all five after it; 64 KiB where heaps are many (heap/birth.c), never
 *            over the bound on free memory, and, but in a rush, not while memory would be touched for the first time instead
 *            (hak_kept_make_room): a vector that grows frees sizes that it never asks for again.
 * Measured:  two threads, 32 to 512 KiB, time as a share of 2 MiB a heap, and peak MiB: 3 MiB 0.83, 33.7; with a quarter less
 *            served, too, 0.71, 34.4; 4 MiB 0.70, 35.6; 8 MiB, eight of a size, 0.54, 43.4.
 *            Later, a million rounds, ns and peak MiB: 3 MiB 117, 36.5; 6 MiB 62, 39.8; 8 MiB 48, 42.0; from 3 to 8 MiB by steps of
 *            4,096 misses 67, 41.0, of 1,024 59, 42.0 (100,000 rounds 157 and 127; 158 without steps). A block from the chunk words waits
 *            for all that the program wrote: a dozen atomic operations.
 * Rejected:  what most is kept of goes back instead of what came last: a seventh fewer misses, no time. Claiming each span by CAS: docs/experiments.md.
 */
#ifndef HAK_HEAP_KEPT_H
#define HAK_HEAP_KEPT_H

#include "heap/heap.h"
#include "memory/large.h"

enum { HAK_KEPT_BYTES_MAX = 3 << 20, HAK_KEPT_BYTES_RUSH = 12 << 20, HAK_KEPT_BYTES_CROWDED = HAK_GRANULE_BYTES };
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
HAK_INLINE void hak_kept_forget(struct hak_heap *heap) { heap->kept.steps = heap->kept.refused = 0, heap->kept.missed = 0; }
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

/* The usual way of hak_kept_give(), for what was kept before; in the list or not at all. */
HAK_INLINE bool hak_kept_push(struct hak_heap *heap, struct hak_granule *record, size_t count) {
    struct hak_kept *kept = &heap->kept;
    unsigned n = kept->count[count - 1];
    uint64_t bytes = hak_load_relaxed(&kept->bytes) + ((uint64_t)count << HAK_GRANULE_SHIFT);
    if (HAK_UNLIKELY((n >= kept->each) | (bytes > hak_load_relaxed(&kept->reserved)))) return false;
    hak_large_keep(record, hak_kept_name(heap));
    hak_store_relaxed(&kept->bytes, bytes);
    kept->record[count - 1][n] = record;
    __atomic_store_n(&kept->count[count - 1], (uint8_t)(n + 1), __ATOMIC_RELEASE); /* record before count: fork */
    return true;
}
HAK_INLINE bool hak_kept_may_be_given_again(const struct hak_granule *record) {
    uint64_t facts = hak_large_facts(record);
    return HAK_LIKELY((facts & HAK_LARGE_NOTED) != 0) && HAK_LIKELY((uint32_t)facts <= HAK_KEPT_SIZES) &&
           HAK_LIKELY(!hak_large_is_kept(record));
}

/* A block of `count` granules at most HAK_KEPT_SIZES, or up to a quarter more; NULL: none is kept. What it holds is old.
 * Begun before, and left. */
HAK_INLINE void *hak_kept_take_begun(struct hak_heap *heap, size_t count, size_t bytes) {
    struct hak_kept *kept = &heap->kept;
    unsigned n = kept->count[count - 1];
    void *block = NULL;
    for (size_t most = count + count / 4; n == 0 && count < most && count < HAK_KEPT_SIZES;) n = kept->count[count++];
    if (n > 0) {
        struct hak_granule *record = kept->record[count - 1][n - 1];
        __atomic_store_n(&kept->count[count - 1], (uint8_t)(n - 1), __ATOMIC_RELEASE); /* before it is a block: fork */
        hak_store_relaxed(&kept->bytes, hak_load_relaxed(&kept->bytes) - ((uint64_t)count << HAK_GRANULE_SHIFT));
        if (HAK_UNLIKELY(!hak_large_kept_by(record, hak_kept_name(heap)))) hak_slab_misuse("malloc", record->start);
        block = hak_large_again(record, hak_kept_name(heap), bytes);
    }
    hak_kept_leave(heap);
    return block;
}
HAK_INLINE void *hak_kept_take(struct hak_heap *heap, size_t count, size_t bytes) {
    return HAK_LIKELY(hak_kept_enter(heap)) ? hak_kept_take_begun(heap, count, bytes) : NULL;
}

#endif
