/* region.h - the window of address space, and where its metadata stand.
 *
 * Owns:      the reservation: one window of data, in front of it the granule records (growing downwards
 *            from the window's base, so that the base alone finds both), the chunks' metadata, the chunk
 *            structs (growing downwards) and the fork page:
 *
 *              fork page | chunk structs <- | -> metadata, 128 KiB a chunk | <- records | window ->
 *                                         meta                                        base
 *
 * Threads:   any; what is here changes once, at start-up, but for the committed mark.
 * Invariant: granules below `committed` (or with their `mapped` bit, under RLIMIT_AS) are read-write, and so
 *            are their records, chunk structs and metadata.
 * Rejected:  a map of pointers to slab records (one dependent load more; zero is a fault instead of an answer).
 */
#ifndef HAK_MEMORY_REGION_H
#define HAK_MEMORY_REGION_H

#include "base/atomic.h"
#include "base/attr.h"
#include "memory/window.h"

enum {
    HAK_GRANULE_SHIFT = 16,
    HAK_GRANULE_BYTES = 1 << HAK_GRANULE_SHIFT,
    HAK_CHUNK_GRANULES = 64,
    HAK_CHUNK_BYTES = HAK_GRANULE_BYTES * HAK_CHUNK_GRANULES,
    HAK_META_BYTES = 128 << 10, /* of metadata for each chunk; only what is used becomes resident */
};

struct hak_heap;
struct hak_chunk;

/* What free() asks first. One per granule; for a slab the same in each of its granules, for a large block
 * only in the first (see memory/large.h), all zero elsewhere. Type-stable: never unmapped. */
struct hak_granule {
    _Atomic(struct hak_heap *) owner; /* NULL: no block is here */
    hak_atomic_u64 *words;            /* the owner's bits, set = free; the countdown stands before them */
    char *start;                      /* of the slab or block */
    uint64_t reciprocal;              /* ceil(2^64 / block bytes) */
};
HAK_STATIC(sizeof(struct hak_granule) == 32);

struct hak_region {
    uintptr_t meta;        /* the first chunk's metadata */
    size_t chunk_count;    /* the window's */
    uint32_t page_shift;
    bool mapped_on_demand; /* RLIMIT_AS is finite: nothing is reserved, pieces are mapped as they are needed */
    size_t reserved_bytes;
    hak_atomic_u64 committed_granules; /* all granules below are read-write (not when mapped_on_demand) */
    hak_atomic_u64 mapped_bytes;       /* of data, when mapped_on_demand */
    hak_atomic_u32 *fork_page;         /* the fork epoch; reads 0 in a fresh child */
    bool fork_page_wipes;              /* false: the kernel refused it (front/start.c asks libc then) */
};
extern struct hak_region hak_region;

/* Makes the region; false when not even the smallest one is granted. Any thread, idempotent. */
bool hak_region_start(size_t wanted_gb);

HAK_INLINE struct hak_granule *hak_granule_at(size_t granule) {
    return (struct hak_granule *)hak_window.base - 1 - granule;
}
HAK_INLINE size_t hak_granule_of(const void *address) {
    return ((uintptr_t)address - hak_window.base) >> HAK_GRANULE_SHIFT;
}
HAK_INLINE char *hak_granule_address(size_t granule) {
    return (char *)hak_window.base + (granule << HAK_GRANULE_SHIFT);
}
HAK_INLINE bool hak_region_holds(const void *address) {
    return (uintptr_t)address - hak_window.base < hak_window.bytes;
}
HAK_INLINE uintptr_t hak_meta_at(size_t chunk) { return hak_region.meta + chunk * HAK_META_BYTES; }

/* Makes `count` granules from `granule` on usable, with their records; and a chunk's metadata. The caller has
 * taken the granules. False: the kernel refuses. */
bool hak_region_commit(size_t granule, size_t count);
bool hak_region_commit_meta(size_t chunk);

/* The same for chunk structs, before anybody looks at them. */
bool hak_region_commit_chunk(size_t chunk);

#endif
