/* pool.c - see pool.h.
 *
 * Owns:      where pools lie: granules of their own, never given back, as with heaps (heap/birth.c); a heap keeps its pools
 *            when its thread ends.
 * Fork:      a word moves between two bins in an order that may lose blocks in a child, never double them.
 */
#include "heap/pool.h"

#include <string.h>

hak_atomic_u64 hak_split_classes;
hak_atomic_u32 hak_pool_granules;
HAK_ALIGNED(HAK_LINE) hak_atomic_u64 hak_pool_sites[HAK_SMALL_CLASS_MAX + 1][(1 << HAK_POOL_SITE_BITS) / 64];

enum { STRIDE = (sizeof(struct hak_pools) + HAK_LINE - 1) & -HAK_LINE, PER_GRANULE = HAK_GRANULE_BYTES / STRIDE };

static struct hak_pools *pools_new(void) {
    static hak_atomic_u64 next_free; /* granule + 1 << 16 | pools left in it */
    for (;;) {
        uint64_t now = hak_load_acquire(&next_free), left = now & 0xffff;
        if (left > 0) {
            if (!hak_cas(&next_free, &now, now - 1)) continue;
            return (struct hak_pools *)(void *)(hak_granule_address((now >> 16) - 1) + (left - 1) * STRIDE);
        }
        size_t dirty, granule = hak_span_take(1, 1, &dirty);
        if (granule == HAK_NO_GRANULE) return NULL;
        if (dirty) memset(hak_granule_address(granule), 0, HAK_GRANULE_BYTES);
        if (!hak_cas(&next_free, &now, ((uint64_t)granule + 1) << 16 | PER_GRANULE))
            hak_span_give(granule, 1, dirty ? HAK_SPAN_DIRTY : HAK_SPAN_AS_IT_WAS);
        else hak_add(&hak_pool_granules, 1);
    }
}

static void word_move(struct hak_bin *from, struct hak_bin *to) {
    uint64_t word = from->word;
    to->base = from->base;
    __atomic_store_n(&from->word, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&to->word, word, __ATOMIC_RELEASE);
}

void hak_pool_resplit(struct hak_heap *heap) {
    uint64_t wanted = hak_load_acquire(&hak_split_classes), was = hak_load_relaxed(&heap->split);
    struct hak_pools *pools = hak_load_relaxed(&heap->pools);
    if (!pools) {
        pools = pools_new();
        if (!pools) return; /* memory is short: not now */
        hak_store_release(&heap->pools, pools);
    }
    for (uint64_t changed = wanted ^ was; changed; changed &= changed - 1) {
        unsigned c = hak_word_first(changed) + 1;
        if (wanted >> (c - 1) & 1) word_move(&heap->bin[c], &pools->bin[c][0]);
        else word_move(&pools->bin[c][0], &heap->bin[c]);
    }
    hak_store_release(&heap->split, wanted);
    for (uint64_t joined = was & ~wanted; joined; joined &= joined - 1) {
        unsigned pool = hak_pool_of(hak_word_first(joined) + 1u);
        hak_bin_put_back(heap, pool); /* nobody asks for its blocks now; its pages go back like any slab's */
    }
}

static HAK_NOINLINE void *pool_visit(size_t bytes, struct hak_heap *heap, unsigned shelf_index, const void *address, uintptr_t stack) {
    heap->from_address = address;
    heap->from_stack = stack;
    void *block = hak_visit_any(bytes, heap, shelf_index);
    heap->from_address = NULL;
    return block;
}

void *hak_pool_malloc(size_t bytes, struct hak_heap *heap, size_t class_index, const void *address, uintptr_t stack) {
    uint64_t hash = hak_pool_hash(address, heap->stack_top - stack);
    struct hak_pools *pools = hak_load_relaxed(&heap->pools);
    uint64_t is_long = hak_load_relaxed(&hak_pool_sites[class_index][hash / 64]) >> hash % 64 & 1;
    struct hak_bin *bin = &pools->bin[class_index][is_long];
    uint64_t word = bin->word;
    if (HAK_UNLIKELY(word == 0))
        return pool_visit(bytes, heap, (unsigned)(is_long ? hak_pool_of((unsigned)class_index) : class_index), address, stack);
    bin->word = word & (word - 1);
    return bin->base + (size_t)__builtin_ctzll(word) * (class_index * 16);
}
