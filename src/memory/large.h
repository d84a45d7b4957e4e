/* large.h - blocks above 32 KiB: one span each.
 *
 * Owns:      the granule record of the block's first granule, whose fields then mean: owner HAK_LARGE, words the
 *            usable bytes and the name of the heap whose own it is, start the block, in the granule's first page, reciprocal the granules, its site's
 *            row (memory/bigcache.h), and whether its pages were moved here.
 *            The block's other granules have records of zeros.
 * Threads:   any. Who swaps owner from HAK_LARGE to NULL by CAS frees the block; there is no second. The thread whose own
 *            the block is needs no CAS, for a right program frees a block once; what happens in a wrong one that does so
 *            twice at the same time: docs/protocols.md, 6.
 * Cached:    a freed span stays resident under the bound of memory/purge.h; the chunk words are the cache.
 */
#ifndef HAK_MEMORY_LARGE_H
#define HAK_MEMORY_LARGE_H

#include "base/word.h"
#include "memory/bigcache.h"
#include "memory/chunk.h"

extern char hak_large_mark[HAK_LINE];
/* Its granules are marked dirty, for it was kept before, and of that size: hak_large_keepable() has seen it. */
#define HAK_LARGE_NOTED (UINT64_C(1) << 60)
/* Of a family: its name is that of one of the family's heaps (heap/family.h), whatever its size. */
#define HAK_LARGE_FAMILY (UINT64_C(1) << 59)
/* Nobody may touch what lies behind its pages (slab/secure.h). */
#define HAK_LARGE_GUARDED (UINT64_C(1) << 58)
#define HAK_LARGE ((struct hak_heap *)(void *)hak_large_mark)

/* Words are a number here: the usable bytes, a heap's name, and in the lowest bit whether it is kept. */
enum { HAK_LARGE_NAME_SHIFT = 44 }; /* 20 bits; 0 is nobody's */
#define HAK_LARGE_KEPT UINT64_C(1)
HAK_INLINE uint64_t hak_large_words(const struct hak_granule *record) {
    return (uint64_t)(uintptr_t)__atomic_load_n(&record->words, __ATOMIC_RELAXED);
}
HAK_INLINE size_t hak_large_words_bytes(uint64_t words) { return (size_t)(words & ((UINT64_C(1) << HAK_LARGE_NAME_SHIFT) - 1) & ~HAK_LARGE_KEPT); }
HAK_INLINE size_t hak_large_usable(const struct hak_granule *record) { return hak_large_words_bytes(hak_large_words(record)); }
/* So much of the span lies in front of a block of so many usable bytes, which ends with a page. */
HAK_INLINE size_t hak_large_lead(size_t usable) { return -usable & (((size_t)1 << hak_page_shift()) - 1); }
HAK_INLINE uint32_t hak_large_words_name(uint64_t words) { return (uint32_t)(words >> HAK_LARGE_NAME_SHIFT); }
HAK_INLINE uint32_t hak_large_name(const struct hak_granule *record) { return hak_large_words_name(hak_large_words(record)); }
HAK_INLINE void hak_large_words_set(struct hak_granule *record, uint64_t words) {
    __atomic_store_n(&record->words, (hak_atomic_u64 *)(uintptr_t)words, __ATOMIC_RELEASE);
}
/* What a large block's record has there; atomic, because who holds a stale name may be looking (heap/kept.c). */
HAK_INLINE uint64_t hak_large_facts(const struct hak_granule *record) { return __atomic_load_n(&record->reciprocal, __ATOMIC_RELAXED); }
HAK_INLINE size_t hak_large_granules(const struct hak_granule *record) { return (size_t)(hak_large_facts(record) & UINT32_MAX); }

/* The usable bytes of a block that another thread may be ending; 0: it is no large block. Words that are found before the owner and
 * again after it are the block's, for what comes there after its end is written when the record has no owner any more; but a slab that was cut
 * there before the block and is cut there again after it has the same words. So they must agree with the granules, too. */
HAK_INLINE size_t hak_large_held(const struct hak_granule *record) {
    enum { TRIES = 8 }; /* it became another size just now */
    for (unsigned tries = 0; tries < TRIES; tries++) {
        uint64_t words = (uint64_t)(uintptr_t)__atomic_load_n(&record->words, __ATOMIC_ACQUIRE);
        if (hak_load_acquire(&record->owner) != HAK_LARGE) return 0;
        size_t bytes = hak_large_words_bytes(words), granules = hak_large_granules(record); /* a slab's reciprocal: 0, or more than 6 TiB */
        bool is_block = bytes - 1 < granules << HAK_GRANULE_SHIFT && granules <= hak_region.chunk_count * HAK_CHUNK_GRANULES;
        if (is_block && words == hak_large_words(record)) return bytes;
    }
    return 0;
}

/* A block of at least `bytes`. It begins where its span does, a multiple of `align` (a power of two), if `bytes` are whole pages; else at a multiple
 * of HAK_LEAD_STEP in the first page such that it needs no page more. *zeroed: all of it reads as zeros already. NULL when there is no room. */
void *hak_large_take(struct hak_rush *rush, size_t bytes, size_t align, hak_big_name site, bool *zeroed);

/* Of a chunk that is ready, the granules of blocks of up to 1 MiB whose sites touch all they ask for. */
size_t hak_large_dense(size_t number);

/* Makes a fresh block of hak_large_take() read as zeros; what the kernel has cleared is not touched. */
void hak_large_clear(struct hak_granule *record, size_t bytes);

/* False: it is free already. End takes the block from the program, finish gives its span back; give is both. */
bool hak_large_give(struct hak_granule *record);
bool hak_large_end(struct hak_granule *record);
void hak_large_finish(struct hak_rush *rush, struct hak_granule *record);
void hak_large_finish_returned(struct hak_granule *record); /* the same: all its pages went back, and it reads as zeros */

/* A sampled block: it is not kept, and its end is told, while its granules are still its own. NULL: nobody samples. */
void hak_large_sampled(struct hak_granule *record);
void hak_large_sample_ended(struct hak_granule *record); /* now, for finish may be long after */
extern void (*hak_large_on_end)(void *block);

/* A block just taken becomes the own of the heap of this name, whose thread then ends it without a CAS. */
HAK_INLINE void hak_large_own(struct hak_granule *record, uint32_t name) {
    hak_large_words_set(record, hak_large_usable(record) | (uint64_t)name << HAK_LARGE_NAME_SHIFT);
}
HAK_INLINE void hak_large_end_own(struct hak_granule *record) { hak_store_release(&record->owner, NULL); }

/* A block just taken, or moved, becomes a family's; one that has ended, or is given up, is no family's. */
HAK_INLINE void hak_large_family_set(struct hak_granule *record, uint32_t name) {
    hak_large_words_set(record, hak_large_usable(record) | (uint64_t)name << HAK_LARGE_NAME_SHIFT);
    __atomic_store_n(&record->reciprocal, hak_large_facts(record) | HAK_LARGE_FAMILY, __ATOMIC_RELAXED);
}
HAK_INLINE void hak_large_family_clear(struct hak_granule *record) {
    __atomic_store_n(&record->reciprocal, hak_large_facts(record) & ~HAK_LARGE_FAMILY, __ATOMIC_RELAXED);
    hak_large_words_set(record, hak_large_usable(record));
}

/* Between end and finish the span may be kept for the next block of its size: used in its chunk, of no owner, under the name
 * of who keeps it. Then it is another block, or dropped: given back. Who keeps it asks first whether it is still kept as
 * he left it: if not, two threads have freed it at once. Keepable: makes ready for that; false: not this one. */
bool hak_large_keepable(struct hak_granule *record);
HAK_INLINE bool hak_large_is_kept(const struct hak_granule *record) { return hak_large_words(record) & HAK_LARGE_KEPT; }
HAK_INLINE bool hak_large_kept_by(const struct hak_granule *record, uint32_t name) {
    uint64_t words = hak_large_words(record);
    return HAK_LIKELY(hak_large_words_name(words) == name) && HAK_LIKELY((words & HAK_LARGE_KEPT) != 0);
}
HAK_INLINE void *hak_large_again(struct hak_granule *record, uint32_t name, size_t bytes) {
    size_t whole = hak_round_up(bytes, (size_t)1 << hak_page_shift()), lead = hak_span_lead_within(hak_granule_of(record->start), whole - bytes);
    char *start = record->start - (uintptr_t)record->start % HAK_GRANULE_BYTES + lead;
    record->start = start;
    hak_large_words_set(record, (whole - lead) | (uint64_t)name << HAK_LARGE_NAME_SHIFT);
    hak_store_release(&record->owner, HAK_LARGE);
    return start;
}
void hak_large_drop(struct hak_granule *record);

/* What the block would have of granules with that size, where it begins; and if it began with its span. */
size_t hak_large_granules_as(const struct hak_granule *record, size_t bytes);
HAK_INLINE size_t hak_large_granules_for(size_t bytes) { return (bytes >> HAK_GRANULE_SHIFT) + (bytes % HAK_GRANULE_BYTES != 0); }

/* Changes the size in place; false when what follows is in use. */
bool hak_large_resize(struct hak_granule *record, size_t bytes);
/* The same, and it begins with its span from then on, where its first `used` bytes are moved to: that may need a granule less. False: nothing was. */
bool hak_large_resize_settled(struct hak_granule *record, size_t bytes, size_t used);

/* Moves the block's pages to a larger span without copying; the new address, or NULL: copy instead. */
void *hak_large_move(struct hak_granule *record, size_t bytes);

/* In use for ever by nobody: the kernel would not map them again after a move that it refused. */
extern hak_atomic_i64 hak_large_lost_granules;

#endif
