/* bigcache.h - what is known of the call sites of large blocks: do they touch what they ask for, and do they ask again?
 *
 * The spans' cache is the chunk words (memory/chunk.h); this is its policy, not a second store.
 *
 * Owns:      a table of rows by call site and octave of sizes; a live block's record names its row.
 * Threads:   any, relaxed: knowledge steers, and a lost count costs a little memory or time, never more. A row is taken
 *            by CAS on its key. A row that changes hands mixes two sites' knowledge until the next few blocks.
 * Learnt:    `touched`, how much of a block that was fresh from the kernel is resident when it is freed, or when the site
 *            asks for the next one (mincore; the first few blocks, then one in 16); `back`, how many times in a row the
 *            site asked within large_linger_ms of a free.
 * Used:      blocks of dense sites (15 of 16 pages touched) get huge pages, or are populated in one go. Freed blocks of
 *            sites that come back stay although the bound is broken, up to large_keep_mb and for as long as free memory
 *            breathes (memory/purge.h); those of sites that never do go back at once.
 */
#ifndef HAK_MEMORY_BIGCACHE_H
#define HAK_MEMORY_BIGCACHE_H

#include "base/atomic.h"
#include "base/attr.h"

/* 0: none, the table is full of busier ones or the whole is switched off. */
typedef unsigned hak_big_name;
enum { HAK_BIG_ROWS = 1024 };

/* The site's name, and counts an allocation of it if that is wanted; `height` of the stack at the call. */
hak_big_name hak_big_site(const void *address, uint32_t height, size_t bytes, bool is_counted);
/* Counts a free; gives whether it should be looked at how much of the block was touched, had it been fresh. */
bool hak_big_given(hak_big_name name);
/* While little is known of the site: the granule of its last fresh block (0: none), so that somebody may look what became
 * of it. From now on that is `fresh_granule`. */
size_t hak_big_last(hak_big_name name, size_t fresh_granule);
/* Of 1,024 parts so many are resident. */
void hak_big_looked(hak_big_name name, unsigned touched);

/* *is_looked_at: this block is one of those that must show whether it is still so. */
bool hak_big_is_dense(hak_big_name name, bool *is_looked_at);
/* It was seen to touch less than half of what it asks for. */
bool hak_big_is_sparse(hak_big_name name);
bool hak_big_comes_back(hak_big_name name);
bool hak_big_never_comes_back(hak_big_name name);

/* For the policy file: what a run knows of the sites that come back. */
struct hak_big_known {
    const void *address;
    uint32_t height;
    unsigned octave; /* log2 of the bytes */
    unsigned back, touched;
};
void hak_big_each(void (*function)(const struct hak_big_known *known, void *context), void *context);
void hak_big_learnt(const struct hak_big_known *known);

#endif
