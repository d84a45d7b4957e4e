/* chunk.h - 4 MiB of the window as one word of 64 granules; spans are runs of its bits.
 *
 * Owns:      which granules are used, which free ones may still be resident (dirty), where slabs begin.
 * Threads:   any; each change is one atomic operation. Who took a granule's `used` bit owns the granule and
 *            its other bits, its absent pages and those that are gone until it gives the used bit back; of a slab's, who holds its claim.
 * Invariant: a granule that is neither used nor dirty reads as zeros and is not resident; a blank one is zeros, too. A partial one is
 *            free (or on its way into a slab) and dirty; what it has absent is not resident, as far as we know, and reads as zeros.
 * Order:     pages are returned before dirty bits are cleared, those before used bits; a record is written
 *            before a pointer into its granule leaves.
 */
#ifndef HAK_MEMORY_CHUNK_H
#define HAK_MEMORY_CHUNK_H

#include "base/word.h"
#include "memory/region.h"
#include "memory/rush.h"

struct HAK_ALIGNED(HAK_LINE) hak_chunk {
    hak_atomic_u64 used;   /* granules that are handed out */
    hak_atomic_u64 dirty;  /* granules that may be resident; meaningful while they are free */
    hak_atomic_u64 slabs;  /* granules at which a live slab begins: the way in for third threads */
    union {
        hak_atomic_u64 mapped; /* granules that are mapped, when data comes by pieces */
        hak_atomic_u64 blank;  /* else: of the dirty ones those that read as zeros all the same (memory/huge.h) */
    };
    hak_atomic_u64 cold;   /* free and dirty at the last sweep already */
    hak_atomic_u64 ever;   /* granules of which pages went back and were not used since: touching those again is counted */
    hak_atomic_u32 returned_ms;   /* when pages of it were last returned */
    hak_atomic_u32 looked_ms;     /* when the sweep last came by */
    _Atomic(uint8_t) data_state;  /* region.c: are its granules mapped? */
    _Atomic(uint8_t) rows_used;   /* its metadata may be resident */
    _Atomic(uint8_t) huge;        /* halves in which the kernel may use huge pages */
    _Atomic(uint16_t) pieces;     /* when data comes by pieces: those that somebody maps, has mapped, or found foreign */
    _Atomic(uint16_t) foreign;    /* of these, given up for good */
    hak_atomic_u64 partial;       /* free granules of which only some pages are resident: a slab ended that had not used the others */
    hak_atomic_u64 unseen;        /* free dirty granules of a block that was hardly touched: to be looked at before it matters what is resident */
    _Atomic(uint16_t) absent[HAK_CHUNK_GRANULES]; /* of a partial one: these pages are not */
    _Atomic(uint16_t) gone[HAK_CHUNK_GRANULES];   /* of one in `ever`: these pages went back */
};
HAK_STATIC(offsetof(struct hak_chunk, partial) == HAK_LINE && sizeof(struct hak_chunk) == 6 * HAK_LINE);

/* All pages of a granule, as bits. */
HAK_INLINE unsigned hak_granule_pages(void) { return (1u << (HAK_GRANULE_BYTES >> hak_region.page_shift)) - 1; }

HAK_INLINE struct hak_chunk *hak_chunk_at(size_t chunk) {
    size_t unit = chunk >> hak_region.unit_shift;
    return (struct hak_chunk *)hak_unit_meta(unit) + (chunk - (unit << hak_region.unit_shift));
}

/* Is its data mapped (or mapped by pieces)? Its unit is ready. */
HAK_INLINE bool hak_chunk_ready(size_t chunk) {
    return hak_region.is_limited || hak_load_acquire(&hak_chunk_at(chunk)->data_state) == HAK_PART_READY;
}

/* The granules at which live slabs begin; 0 for a chunk that is not ready. */
HAK_INLINE uint64_t hak_chunk_slabs(size_t chunk) {
    return hak_unit_ready(chunk) ? hak_load_acquire(&hak_chunk_at(chunk)->slabs) : 0;
}

/* What the granules' owner wrote is no longer blank. */
HAK_INLINE void hak_chunk_forget_blank(struct hak_chunk *chunk, uint64_t mask) {
    if (HAK_UNLIKELY(!hak_region.is_limited && hak_load_relaxed(&chunk->blank) & mask)) hak_and(&chunk->blank, ~mask);
}

/* Of the dirty granules of `mask`, the pages that are not resident all the same. */
int64_t hak_chunk_absent_bytes(struct hak_chunk *chunk, uint64_t mask);

/* What of these granules, free ones or on their way into use, is resident. */
HAK_INLINE int64_t hak_chunk_resident_bytes(struct hak_chunk *chunk, uint64_t mask) {
    uint64_t dirty = hak_load_relaxed(&chunk->dirty) & mask;
    int64_t bytes = (int64_t)hak_word_count(dirty) << HAK_GRANULE_SHIFT;
    return HAK_LIKELY(!(hak_load_relaxed(&chunk->partial) & dirty)) ? bytes : bytes - hak_chunk_absent_bytes(chunk, dirty);
}

/* Before its owner gives a granule back as dirty: these of its pages are absent, one at least. */
void hak_granule_leave_absent(size_t granule, unsigned absent);

/* The same for all of a span of which probably little is resident. Once it is given back hak_purge.unseen is to be set. */
void hak_span_leave_unseen(size_t granule, size_t count);

/* The caller has taken the granules of `mask` and not written to them: of those that are unseen the kernel is asked which pages are
 * resident, and to forget the others, for they may be swapped out. Gives the bytes that turned out to be absent; they were counted as
 * free memory while the granules were free. */
int64_t hak_chunk_look(size_t number, uint64_t mask);

/* The caller has taken the granules: all of their pages may be resident from now on. */
HAK_INLINE void hak_chunk_forget_absent(struct hak_chunk *chunk, uint64_t mask) {
    if (hak_load_relaxed(&chunk->partial) & mask) hak_and(&chunk->partial, ~mask);
    if (hak_load_relaxed(&chunk->unseen) & mask) hak_and(&chunk->unseen, ~mask);
}

#define HAK_NO_GRANULE SIZE_MAX

/* Chunks from this one on were never used; below, some may not be ready (hak_unit_ready). */
extern hak_atomic_u64 hak_chunk_top;

/* Takes `count` granules in a row, the first at a multiple of `align` (a power of two); up to 32 of them lie
 * in one chunk, and where `align` is not 1 up to 64, and more begin at a chunk's start. They are committed; *dirty_granules says how many may be resident
 * (0: all read as zeros). HAK_NO_GRANULE when there is no room or the kernel refuses. The hard limit is not asked (memory/limit.h): for
 * what is the library's own, and for who asked it himself. */
size_t hak_span_take(size_t count, size_t align, size_t *dirty_granules);

/* As hak_span_take() within the hard limit and hak_span_give(), by a thread that may be in a rush (memory/rush.h); NULL: by somebody who keeps
 * nothing apart. */
size_t hak_span_take_in(struct hak_rush *rush, size_t count, size_t align, size_t *dirty_granules);

/* Would that be, of up to 64 granules, memory of which nothing is resident? A guess: others take and give meanwhile, and what lies across
 * chunks is not looked at. */
bool hak_span_next_is_clean(size_t count);

/* The same for a slab: up to 32 granules, possibly in huge pages. Its pages are used one by one, and who does that says which of
 * them are touched again (hak_chunk_take_gone), and takes over which are absent (hak_chunk_forget_absent). What of it became
 * resident by a huge page is dirty and blank. Where few of its pages may be wanted it is clean as a whole if there is such a span in the first
 * chunks with room, in small pages, and leaves what is resident to others. */
enum hak_growth { HAK_GROWTH_SOME, HAK_GROWTH_LITTLE, HAK_GROWTH_DENSE }; /* dense: it fills slab after slab */
size_t hak_span_take_dense(size_t count, enum hak_growth growth);

/* Takes a half of a chunk of which nothing is resident; HAK_NO_GRANULE: it was not to be had without others' leavings. */
size_t hak_span_take_half(void);

/* Takes just these granules, of one chunk, for a slab: where one of its class ended lately. Not if anybody has some of them, or if the first
 * is not resident. */
bool hak_span_take_again(size_t granule, size_t count);

/* Of the caller's granule `at` these pages went back. Take: of these pages those that did, and forgets that. */
void hak_chunk_note_gone(struct hak_chunk *chunk, unsigned at, unsigned pages);
unsigned hak_chunk_take_gone(struct hak_chunk *chunk, unsigned at, unsigned pages);

/* Do the granules, which the caller has taken, all read as zeros? */
bool hak_span_is_blank(size_t granule, size_t count);

/* Granules of the chunk that may hold old contents, if their owner has not written since he took them. */
HAK_INLINE uint64_t hak_chunk_stale(struct hak_chunk *chunk) {
    uint64_t dirty = hak_load_relaxed(&chunk->dirty);
    return hak_region.is_limited ? dirty : dirty & ~hak_load_relaxed(&chunk->blank);
}

/* Gives them back: written to, but for what the caller noted as absent before; returned to the kernel, so that they read as zeros; or
 * not touched since the take. */
enum hak_span_state { HAK_SPAN_DIRTY, HAK_SPAN_CLEAN, HAK_SPAN_AS_IT_WAS };
void hak_span_give(size_t granule, size_t count, enum hak_span_state state);
void hak_span_give_in(struct hak_rush *rush, size_t granule, size_t count, enum hak_span_state state);

/* Granules that were taken are free; hak_span_room() follows, or the same for what touches them. Release: pairs with the take's CAS;
 * seq_cst: see chunk.c. */
HAK_INLINE void hak_chunk_release(struct hak_chunk *chunk, uint64_t mask) { atomic_fetch_and(&chunk->used, ~mask); }

/* Granules of this chunk became free: who looks for a span looks here, too. */
void hak_span_room(size_t chunk);

/* Takes the `more` granules right behind [granule, granule + count), if they are free: all or nothing. */
bool hak_span_extend(size_t granule, size_t count, size_t more);

#endif
