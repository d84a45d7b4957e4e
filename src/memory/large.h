/* large.h - blocks above 32 KiB: one span each.
 *
 * Owns:      the granule record of the block's first granule, whose fields then mean: owner HAK_LARGE, words the
 *            usable bytes, start the block, reciprocal the granules, its site's row (memory/bigcache.h), and whether its
 *            pages were moved here.
 *            The block's other granules have records of zeros.
 * Threads:   any. Who swaps owner from HAK_LARGE to NULL frees the block; there is no second.
 * Cached:    a freed span stays resident under the bound of memory/purge.h; the chunk words are the cache.
 */
#ifndef HAK_MEMORY_LARGE_H
#define HAK_MEMORY_LARGE_H

#include "memory/bigcache.h"
#include "memory/chunk.h"

extern char hak_large_mark[HAK_LINE];
#define HAK_LARGE ((struct hak_heap *)(void *)hak_large_mark)

HAK_INLINE size_t hak_large_usable(const struct hak_granule *record) { return (size_t)record->words; }
/* What a large block's record has there; atomic, because who holds a stale name may be looking (heap/kept.c). */
HAK_INLINE uint64_t hak_large_facts(const struct hak_granule *record) { return __atomic_load_n(&record->reciprocal, __ATOMIC_RELAXED); }
HAK_INLINE size_t hak_large_granules(const struct hak_granule *record) { return (size_t)(hak_large_facts(record) & UINT32_MAX); }

/* A block of at least `bytes`, its address a multiple of `align` (a power of two). *zeroed: all of it reads as
 * zeros already. NULL when there is no room. */
void *hak_large_take(size_t bytes, size_t align, hak_big_name site, bool *zeroed);

/* Makes a fresh block of hak_large_take() read as zeros; what the kernel has cleared is not touched. */
void hak_large_clear(struct hak_granule *record, size_t bytes);

/* False: it is free already. End takes the block from the program, finish gives its span back; give is both. */
bool hak_large_give(struct hak_granule *record);
bool hak_large_end(struct hak_granule *record);
void hak_large_finish(struct hak_granule *record);

/* Between the two the span may be kept for the next block of its size: marked, used in its chunk, of no owner. False: not
 * this one. Whoever claims it, any thread, has it; true for one. Then it is another block, or given back. */
bool hak_large_keep(struct hak_granule *record);
bool hak_large_claim(size_t granule, size_t count);
void *hak_large_again(size_t granule, size_t bytes);
void hak_large_drop(size_t granule, size_t count);
HAK_INLINE bool hak_large_is_kept(struct hak_granule *record) {
    return hak_large_facts(record) >> 61 & 1;
}

/* Changes the size in place; false when what follows is in use. */
bool hak_large_resize(struct hak_granule *record, size_t bytes);

/* Moves the block's pages to a larger span without copying; the new address, or NULL: copy instead. */
void *hak_large_move(struct hak_granule *record, size_t bytes);

/* Kept ones among them. */
extern hak_atomic_i64 hak_large_live_count, hak_large_live_bytes;

#endif
