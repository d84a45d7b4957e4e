/* kept.c - the spans of up to 2 MiB that a thread freed last, for its next blocks of that size.
 *
 * They stay used in the chunk words, so that free and malloc of a size touch no word that other threads share: a record
 * and the heap's own list. The list is a cache of what the records say: a kept span's record has no owner and the mark
 * KEPT. Whoever takes the mark away by CAS has the span; the heap's thread, to use it again, or a third thread, to give
 * back what an idle thread keeps. A name in the list whose mark is gone is stale, and dropped.
 *
 * Owns:      nothing but names; `bytes` of them, and `reserved`: what is counted as free memory for them.
 * Threads:   the heap's owner; hak_kept_steal() any.
 * Invariant: reserved >= bytes, but for what was stolen and is not known yet.
 * Limits:    four of a size, 4 MiB a heap, and never over the bound on free memory.
 * Measured:  malloc and free of 2 MiB by one thread 39 -> 15 ns; two threads, 32-512 KiB: docs/experiments.md.
 */
#include "heap/heap.h"

#include "memory/large.h"
#include "memory/purge.h"
#include "rules/options.h"

enum { KEPT_BYTES_MAX = 2 << 20 };

static uint64_t bytes_of(size_t count) { return (uint64_t)count << HAK_GRANULE_SHIFT; }

void *hak_kept_take(struct hak_heap *heap, size_t count, size_t bytes) {
    struct hak_kept *kept = &heap->kept;
    unsigned n = kept->count[count - 1];
    while (n > 0) {
        uint32_t name = hak_load_relaxed(&kept->name[count - 1][--n]);
        kept->count[count - 1] = (uint8_t)n;
        kept->bytes -= bytes_of(count);
        kept->blocks--;
        if (HAK_LIKELY(hak_large_claim(name, count))) return hak_large_again(name, bytes);
        kept->reserved -= bytes_of(count); /* stolen; the thief has counted it */
    }
    return NULL;
}

bool hak_kept_give(struct hak_heap *heap, struct hak_granule *record) {
    struct hak_kept *kept = &heap->kept;
    size_t count = hak_large_granules(record), granule = hak_granule_of(record->start); /* once kept, the record may be another's */
    if (count > HAK_KEPT_SIZES || HAK_OPT(disable_bigcache) | HAK_OPT(minimal)) return false;
    unsigned n = kept->count[count - 1];
    uint64_t bytes = kept->bytes + bytes_of(count);
    if (n == HAK_KEPT_EACH || bytes > KEPT_BYTES_MAX) return false;
    if (bytes > kept->reserved) {
        int64_t more = (int64_t)(bytes - kept->reserved);
        if (hak_purge_over(more) || !hak_large_keep(record)) return false;
        hak_free_note(more, 0);
        kept->reserved = bytes;
    } else if (!hak_large_keep(record)) {
        return false;
    }
    kept->bytes = bytes;
    kept->blocks++;
    hak_store_relaxed(&kept->name[count - 1][n], (uint32_t)granule);
    kept->count[count - 1] = (uint8_t)(n + 1);
    return true;
}

static void give_back(size_t granule, size_t count) {
    hak_large_drop(granule, count);
    hak_add(&hak_purge.free_bytes, -(int64_t)bytes_of(count)); /* it was counted already, as reserved */
}

void hak_kept_flush(struct hak_heap *heap) {
    struct hak_kept *kept = &heap->kept;
    for (size_t count = 1; kept->blocks && count <= HAK_KEPT_SIZES; count++) {
        while (kept->count[count - 1] > 0) {
            uint32_t name = hak_load_relaxed(&kept->name[count - 1][--kept->count[count - 1]]);
            kept->blocks--;
            kept->reserved -= bytes_of(count);
            if (hak_large_claim(name, count)) give_back(name, count);
        }
    }
    kept->bytes = 0;
    if (kept->reserved) hak_add(&hak_purge.free_bytes, -(int64_t)kept->reserved);
    kept->reserved = 0;
}

void hak_kept_steal(struct hak_heap *heap) {
    for (size_t count = 1; count <= HAK_KEPT_SIZES; count++) {
        for (unsigned i = 0; i < HAK_KEPT_EACH; i++) {
            uint32_t name = hak_load_relaxed(&heap->kept.name[count - 1][i]);
            if (name && hak_large_claim(name, count)) give_back(name, count);
        }
    }
}
