/* pool.c - see pool.h.
 *
 * Owns:      where pools lie: granules of their own, never given back, as with heaps (heap/birth.c); a heap keeps its pools
 *            when its thread ends.
 * Fork:      a word moves between two bins in an order that may lose blocks in a child, never double them.
 */
#include "heap/pool.h"

#include "heap/borrow.h"

#include <string.h>

hak_atomic_u64 hak_split_classes;
hak_atomic_u32 hak_pool_granules;
hak_atomic_u32 hak_split_version;
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

static void sites_copy(struct hak_pools *pools, uint64_t classes) {
    for (; classes; classes &= classes - 1) {
        unsigned c = hak_word_first(classes) + 1;
        for (unsigned i = 0; i < sizeof pools->of[c].sites / 8; i++) pools->of[c].sites[i] = hak_load_relaxed(&hak_pool_sites[c][i]);
    }
}

/* A small heap leaves nothing worth a pool behind: of 1,000 threads with a batch each, every one paid for its own (storm: a quarter more CPU time). */
enum { FOLLOWS_BYTES = 8 << 20 };

void hak_pool_follow(struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) { /* a family has its own lifetime */
        heap->split_seen = hak_load_acquire(&hak_split_version);
        return;
    }
    if (!hak_load_relaxed(&heap->pools) && heap->opened_bytes < FOLLOWS_BYTES) return;
    heap->split_seen = hak_load_acquire(&hak_split_version); /* first: what is told meanwhile is seen the next time */
    uint64_t wanted = hak_load_acquire(&hak_split_classes), was = hak_load_relaxed(&heap->split);
    struct hak_pools *pools = hak_load_relaxed(&heap->pools);
    if ((wanted | was) == 0) return;
    if (!pools) {
        pools = pools_new();
        if (!pools) return; /* memory is short: not now */
        hak_store_release(&heap->pools, pools);
    }
    sites_copy(pools, wanted);
    hak_borrow_serve_none(heap); /* a size of a class that is split is served by its pools */
    for (uint64_t changed = wanted ^ was; changed; changed &= changed - 1) {
        unsigned c = hak_word_first(changed) + 1;
        if (wanted >> (c - 1) & 1) word_move(&heap->bin[c], &pools->of[c].bin[0]);
        else word_move(&pools->of[c].bin[0], &heap->bin[c]);
    }
    hak_store_release(&heap->split, wanted);
    for (uint64_t joined = was & ~wanted; joined; joined &= joined - 1) {
        unsigned pool = hak_pool_of(hak_word_first(joined) + 1u);
        hak_bin_put_back(heap, pool); /* nobody asks for its blocks now; its pages go back like any slab's */
    }
}

HAK_NOINLINE void *hak_pool_visit(size_t bytes, struct hak_heap *heap, struct hak_bin *bin, const void *address, uintptr_t stack) {
    size_t place = (size_t)((char *)bin - (char *)hak_load_relaxed(&heap->pools));
    unsigned class_index = (unsigned)(place / sizeof(struct hak_pool)), is_long = place / sizeof *bin % 2;
    heap->from_address = address;
    heap->from_stack = stack;
    void *block = hak_visit_any(bytes, heap, is_long ? hak_pool_of(class_index) : class_index);
    heap->from_address = NULL;
    return block;
}
