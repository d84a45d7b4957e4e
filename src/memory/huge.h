/* huge.h - huge pages where the heap is dense, and giving them up before parts of them go back.
 *
 * Owns:      `huge` in each chunk: which of its two halves of 2 MiB the kernel was told to back with huge pages.
 * Threads:   any. The flags are hints; who makes a half huge has taken all its granules first.
 * Where:     a half that a growing heap of slabs enters (nothing in it used or resident), once slabs hold huge_from_mb and at most an eighth
 *            of that is not resident (where they hold more, towards a quarter), or for a class that filled slab after slab, a quarter of
 *            huge_from_mb (heap/visit.c), where five halves are resident (its last one may stay unused), and nothing was returned for a
 *            second; and blocks of sites that were seen to touch all they ask for.
 * Price:     the half is resident at once, so what is free of it is counted as free memory (dirty), known to be zero
 *            (blank); under a bound that a policy halved it waits for the next slabs first (memory/ahead.h). Where the kernel must move
 *            pages first to make one, it is dearer than 512 small ones: the first page of each half is timed, and slow ones make us wait, for
 *            longer each time.
 * Return:    to return a part of a huge page alone gives the kernel nothing until it is short of memory, though the
 *            process looks smaller. So the page is split first (MADV_COLD on a part of it does that), truly.
 */
#ifndef HAK_MEMORY_HUGE_H
#define HAK_MEMORY_HUGE_H

#include "memory/chunk.h"

enum { HAK_HALF_GRANULES = 32, HAK_HALF_BYTES = HAK_HALF_GRANULES << HAK_GRANULE_SHIFT };
enum { HAK_HUGE_SLOW_NS = 600000 }; /* what 512 small pages take, or somewhat less: from here on the kernel had none at hand */

/* The caller just took the granules of `mask`, not all of a chunk, for a slab, of a class that grows densely or not. Gives which of them are resident now
 * through this; HAK_HUGE_GONE: nothing is there any more, and they are nobody's. */
#define HAK_HUGE_GONE (~UINT64_C(0))
uint64_t hak_huge_grow(size_t number, uint64_t mask, bool is_class_dense);

/* The caller has taken the half that begins at `granule`, of which nothing is resident: all of it is now, blank and dirty, by a huge page. False: nothing
 * of it is the caller's any more. */
bool hak_huge_half(size_t granule, uint64_t *took_ns);

/* A block of a dense site: what is not resident of it will be soon. is_looked_at: its last half stays as it is, and will tell whether that was right.
 * False: a part of it is not there any more, and it is nobody's. */
bool hak_huge_block(size_t granule, size_t bytes, bool is_looked_at);

/* May the kernel use a huge page where this granule is? */
HAK_INLINE bool hak_huge_at(size_t granule) {
    return hak_load_relaxed(&hak_chunk_at(granule / HAK_CHUNK_GRANULES)->huge) >> granule % HAK_CHUNK_GRANULES / HAK_HALF_GRANULES & 1;
}

/* The caller owns the range, which goes back to the kernel next. */
void hak_huge_leave(const void *start, size_t bytes);

/* Fresh mappings stand where these granules were. */
void hak_huge_forget(size_t granule, size_t count);

#endif
