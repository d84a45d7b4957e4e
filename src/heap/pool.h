/* pool.h - split classes: small blocks of long-lived call sites in slabs of their own.
 *
 * A class that is split has two pools in each heap: its main one, whose slabs are the class's as ever, and one for the call
 * sites that hak_pool_sites marks, whose slabs have an index of their own (slab/class.h). The class's bin stays empty, so
 * malloc leaves its fast path, and hak_pool_malloc() serves it from the word of one pool or the other. free, events, lists
 * and strangers know slabs only, and need nothing. Classes that are not split have not one instruction more.
 *
 * Owns:      hak_split_classes and hak_pool_sites, which learn writes (learn/lifetime.c); the pools of each heap.
 * Threads:   the owner. A heap follows hak_split_classes at its next chores; between, either way is right: which pool a
 *            block lies in decides nothing but its neighbours.
 * Invariant: heap->split has bit c - 1  =>  heap->bin[c].word == 0 and heap->pools exists.
 */
#ifndef HAK_HEAP_POOL_H
#define HAK_HEAP_POOL_H

#include "heap/heap.h"

/* Bit c - 1: small class c is to be split. */
extern hak_atomic_u64 hak_split_classes;

/* For each class which sites are long-lived: a bit for each hash. Two sites of one hash share a pool. */
extern hak_atomic_u64 hak_pool_sites[HAK_SMALL_CLASS_MAX + 1][(1 << HAK_POOL_SITE_BITS) / 64];

/* Counts the changes of both; raised after them, by hak_pools_tell(). */
extern hak_atomic_u32 hak_split_version;
HAK_INLINE void hak_pools_tell(void) { hak_add(&hak_split_version, 1); }

/* Of a call's address and its height on the stack (heap/key.h); quick rather than good. */
HAK_INLINE uint64_t hak_pool_hash(const void *address, uintptr_t height_bytes) {
    return ((uint64_t)(uintptr_t)address + ((uint64_t)height_bytes << 29)) * UINT64_C(0x9e3779b97f4a7c15) >>
           (64 - HAK_POOL_SITE_BITS);
}

/* The pool of a split class. */
HAK_INLINE struct hak_pool *hak_pool_at(struct hak_heap *heap, size_t class_index) {
    return &hak_load_relaxed(&heap->pools)->of[class_index];
}

/* Is who called from `address` with that stack pointer long-lived? To be branched on: a processor that guesses it has the
 * block without waiting for the hash and two loads, 3 ns where memory is slow already (three peaks). */
HAK_INLINE bool hak_pool_is_long(const struct hak_heap *heap, const struct hak_pool *pool, const void *address, uintptr_t stack) {
    uint64_t hash = hak_pool_hash(address, heap->stack_top - stack);
    return pool->sites[hash / 64] >> hash % 64 & 1;
}

/* The bin is empty: its next word. */
void *hak_pool_visit(size_t bytes, struct hak_heap *heap, struct hak_bin *bin, const void *address, uintptr_t stack);

/* Granules that pools lie in. */
extern hak_atomic_u32 hak_pool_granules;

/* The heap splits and joins classes, and knows their sites, as is told now. */
void hak_pool_follow(struct hak_heap *heap);
HAK_INLINE void hak_pool_look(struct hak_heap *heap) {
    if (HAK_UNLIKELY(heap->split_seen != hak_load_relaxed(&hak_split_version))) hak_pool_follow(heap);
}

#endif
