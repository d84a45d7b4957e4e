/* region.h - the window of address space, and where its metadata stand.
 *
 * Owns:      the window: data, in front of it the granule records (growing downwards from the window's base, so
 *            that the base alone finds both), in front of these the chunks' metadata, and the fork page:
 *
 *              fork page | metadata and chunk structs, unit by unit -> ......... <- records | data ->
 *                          meta                                                          base
 *
 *            Nothing is reserved. Parts are mapped as they come into use, at addresses so far from where the
 *            kernel maps by itself that only a mapping with an address of its own can be in the way; what it
 *            covers is left out for good. Records, chunk structs and metadata come by units (32 MiB of data on
 *            4 KiB pages), data by chunks, or by pieces of 256 KiB while RLIMIT_AS or RLIMIT_DATA is finite.
 * Threads:   any; parts are taken by CAS on their state. Who finds one in another's hands goes elsewhere; for a new chunk after some 20 ms.
 * Invariant: chunk structs, metadata and records of a ready unit are read-write; so is the data of a ready chunk.
 * Rejected:  reserving 1 TiB with PROT_NONE: RLIMIT_AS counts it, also when it is lowered in main(); mlockall
 *            counts it; core dumps and valgrind stumble over it. docs/decisions/0003-no-reservation.md
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
    uintptr_t meta;           /* the first unit's metadata */
    size_t chunk_count;       /* the window's, at most */
    uint32_t page_shift;
    uint32_t unit_shift;      /* a unit is 1 << unit_shift chunks */
    size_t unit_meta_bytes;   /* its chunk structs, a page or more, and its chunks' metadata */
    size_t structs_bytes;     /* of these, the chunk structs */
    bool is_limited;          /* RLIMIT_AS or RLIMIT_DATA was finite at start: map pieces, unmap what is free */
    hak_atomic_u64 mapped_bytes; /* of data */
    hak_atomic_u32 *fork_page;   /* the fork epoch; reads 0 in a fresh child */
    bool fork_page_wipes;        /* false: the kernel refused it, and only libc's fork tells */
};
extern struct hak_region hak_region;

/* Of the kernel's pages; x86-64 has one size. */
HAK_INLINE unsigned hak_page_shift(void) {
#ifdef __x86_64__
    return 12;
#else
    return hak_region.page_shift;
#endif
}

/* Makes the region; false when the kernel refuses even the first unit. Any thread, idempotent. */
bool hak_region_start(size_t wanted_gb);

/* Of the window: no block in it is larger. */
HAK_INLINE size_t hak_region_bytes(void) { return hak_region.chunk_count * (size_t)HAK_CHUNK_BYTES; }

HAK_INLINE struct hak_granule *hak_granule_at(size_t granule) {
    return (struct hak_granule *)hak_window.records - granule;
}
HAK_INLINE size_t hak_granule_of(const void *address) {
    return ((uintptr_t)address - hak_window.base) >> HAK_GRANULE_SHIFT;
}
/* A span's first block begins one of so many steps behind it, or none, drawn by where it is: heads of blocks are what programs touch most, and those
 * that lie at the same place of their pages share a few sets of the first-level cache, of large ones a set of the second level, too
 * (docs/decisions/0013). Source: Fibonacci hashing (Knuth, 6.4): spans side by side begin far apart. */
HAK_INLINE size_t hak_span_lead(size_t granule, size_t steps) {
    uint32_t drawn = (uint32_t)granule * UINT32_C(0x9e3779b9);
    return (size_t)(drawn * (uint64_t)(steps + 1) >> 32) * HAK_LEAD_STEP;
}
/* The same where so many bytes are left: less than 4 KiB, whatever the page. */
HAK_INLINE size_t hak_span_lead_within(size_t granule, size_t left) {
    size_t steps = left / HAK_LEAD_STEP;
    if (hak_page_shift() > 12 && steps > HAK_LEAD_STEPS_MAX) steps = HAK_LEAD_STEPS_MAX;
    return hak_span_lead(granule, steps);
}
HAK_INLINE char *hak_granule_address(size_t granule) {
    return (char *)hak_window.base + (granule << HAK_GRANULE_SHIFT);
}
HAK_INLINE bool hak_region_holds(const void *address) {
    return (uintptr_t)address - hak_window.base < __atomic_load_n(&hak_window.bytes, __ATOMIC_RELAXED);
}
HAK_INLINE uintptr_t hak_unit_meta(size_t unit) { return hak_region.meta + unit * hak_region.unit_meta_bytes; }
HAK_INLINE uintptr_t hak_meta_at(size_t chunk) {
    size_t unit = chunk >> hak_region.unit_shift, rest = chunk - (unit << hak_region.unit_shift);
    return hak_unit_meta(unit) + hak_region.structs_bytes + rest * HAK_META_BYTES;
}

/* The state of a unit, or of a chunk's data: nobody has it, somebody maps it, it is there, it cannot be had. */
enum hak_part { HAK_PART_NONE, HAK_PART_TAKEN, HAK_PART_READY, HAK_PART_FOREIGN };

/* May the chunk's struct be looked at? */
bool hak_unit_ready(size_t chunk);

/* Makes [chunk, chunk + count) ready: structs, metadata, records and (but for RLIMIT_AS) data. */
enum hak_ready { HAK_READY, HAK_READY_ELSEWHERE, HAK_READY_REFUSED };
enum hak_ready hak_region_make_ready(size_t chunk, size_t count);

/* Does somebody map it just now? (Or did, in a forked child whose parent's thread it was.) */
bool hak_region_in_hands(size_t chunk);

/* Something that is not ours lies there: given up for good. */
bool hak_region_is_foreign(size_t chunk);

/* Maps the data of granules that the caller has taken, where data comes by pieces. HAK_READY_ELSEWHERE: some pieces are foreign, and
 * their granules are never given back. */
enum hak_ready hak_region_map_pieces_limited(size_t granule, size_t count);
HAK_INLINE enum hak_ready hak_region_map_pieces(size_t granule, size_t count) {
    return HAK_LIKELY(!hak_region.is_limited) ? HAK_READY : hak_region_map_pieces_limited(granule, count);
}
bool hak_region_piece_is_foreign(size_t granule);

#endif
