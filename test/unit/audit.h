/* audit.h - do the sums of the library agree with the bits they are sums of?
 *
 * For a moment in which no other thread is inside the library. Every granule that is used must be explained by a
 * live slab, a large block or a home of heaps: a span that nobody knows any more is lost. Returns NULL or what is
 * wrong.
 */
#ifndef HAK_TEST_AUDIT_H
#define HAK_TEST_AUDIT_H

#include "heap/family.h"
#include "heap/heap.h"
#include "heap/pool.h"
#include "memory/large.h"
#include "memory/purge.h"

struct audit {
    int64_t used, explained, free_bytes, absent_bytes, large_count, large_bytes;
};

static inline void audit_slab(struct audit *audit, struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    unsigned shift = hak_slab_page_shift(class);
    audit->explained += class->granules;
    audit->free_bytes += (int64_t)slab->counted_pages << shift;
    audit->absent_bytes += (int64_t)__builtin_popcountll(slab->returned) << shift;
}

static inline void audit_heap(struct hak_heap *heap, void *most) {
    uint32_t *count = (uint32_t *)most;
    if (heap->index + 1 > *count) *count = heap->index + 1;
}

static inline int64_t audit_homes(void) {
    size_t stride = hak_round_up(sizeof(struct hak_heap), HAK_HEAP_FIRST_BYTES), each = HAK_GRANULE_BYTES / stride;
    uint32_t count = 0;
    hak_heap_each(audit_heap, &count);
    return (int64_t)((count + each - 1) / each);
}

/* What heaps keep is free too; what they have not yet added to the sum that all share is missing there. */
static inline void audit_sums(struct hak_heap *heap, void *context) {
    struct audit *audit = context;
    audit->free_bytes += (int64_t)heap->kept.reserved - heap->free_sum - (heap->middle_from - heap->middle_in);
    for (unsigned i = 0; i < HAK_MIDDLE_CLASSES; i++)
        audit->free_bytes += (int64_t)hak_middle_count(&heap->middle[i]) * heap->middle[i].block_bytes;
}

/* `others`: granules that the test itself holds, or that a heap's failed birth keeps. */
static inline const char *audit_find(struct audit *audit, int64_t others) {
    *audit = (struct audit){ 0, 0, 0, 0, 0, 0 };
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (!hak_unit_ready(number)) continue;
        struct hak_chunk *chunk = hak_chunk_at(number);
        uint64_t used = hak_load_relaxed(&chunk->used), dirty = hak_load_relaxed(&chunk->dirty);
        audit->used += __builtin_popcountll(used);
        audit->free_bytes += (int64_t)__builtin_popcountll(dirty & ~used) * HAK_GRANULE_BYTES;
        uint64_t partial = hak_load_relaxed(&chunk->partial);
        if (partial & (used | ~dirty)) return "a partial granule that is not free and dirty";
        if (hak_load_relaxed(&chunk->unseen) & (used | ~dirty | partial)) return "an unseen granule that is not free and dirty, or was seen";
        for (uint64_t left = partial; left; left &= left - 1)
            audit->free_bytes -= (int64_t)__builtin_popcount(hak_load_relaxed(&chunk->absent[__builtin_ctzll(left)])) << hak_region.page_shift;
        for (unsigned i = 0; i < HAK_CHUNK_GRANULES; i++) {
            size_t granule = number * HAK_CHUNK_GRANULES + i;
            struct hak_granule *record = hak_granule_at(granule);
            if (hak_load_relaxed(&chunk->slabs) >> i & 1) audit_slab(audit, hak_slab_at(granule));
            bool kept = hak_large_is_kept(record); /* for its thread's next block (heap/kept.c); counted as a block */
            if (kept && hak_load_relaxed(&record->owner)) return "a kept span with an owner";
            if (kept || hak_load_relaxed(&record->owner) == HAK_LARGE) {
                if (!(used >> i & 1)) return "a large block in a free granule";
                audit->explained += (int64_t)hak_large_granules(record);
                audit->large_count++;
                audit->large_bytes += (int64_t)hak_large_granules(record) * HAK_GRANULE_BYTES;
            }
        }
    }
    audit->explained += audit_homes() + hak_load_relaxed(&hak_pool_granules) + hak_load_relaxed(&hak_family_pages) + hak_load_relaxed(&hak_large_lost_granules) + others;
    hak_heap_each(audit_sums, audit);
    if (audit->used != audit->explained) return "used granules that are neither slab, large block nor heap";
    if (audit->used != hak_load_relaxed(&hak_purge.used_granules)) return "hak_purge.used_granules";
    if (audit->free_bytes != hak_load_relaxed(&hak_purge.free_bytes)) return "hak_purge.free_bytes";
    if (audit->absent_bytes != hak_load_relaxed(&hak_purge.absent_bytes)) return "hak_purge.absent_bytes";
    if (audit->large_count != hak_load_relaxed(&hak_large_live_count)) return "hak_large_live_count";
    if (audit->large_bytes != hak_load_relaxed(&hak_large_live_bytes)) return "hak_large_live_bytes";
    return NULL;
}

#endif
