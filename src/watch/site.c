/* site.c - the table of explicit call sites.
 *
 * Owns:      the table, mapped by the first site: 320 KiB of address space, of which a page becomes resident for each site used.
 * Threads:   any; a row's key is set once by one compare-and-swap, its counts are relaxed additions.
 * Invariant: keys that are not 0 differ from each other and never change; there are at most
 *            HAK_SITE_COUNT_MAX of them, so half of the slots stay empty and every search ends soon, also for
 *            sites that found the table full, or none because the kernel refused it.
 * Rejected:  a table that grows: it would allocate from inside an allocation, and old readers would need
 *            protection; a row in each heap: sites are few and hot ones can batch; a table in .bss, which
 *            few programs use and which made .bss larger than 2 MiB: the kernel, if told so, had a huge page for it.
 */
#include "watch/site.h"

#include "base/atomic.h"
#include "os/os.h"

enum { SLOT_COUNT = 2 * HAK_SITE_COUNT_MAX, SLOT_BITS = 13 };
HAK_STATIC(SLOT_COUNT == 1 << SLOT_BITS);

struct row {
    _Atomic(uintptr_t) site; /* 0: empty */
    hak_atomic_u64 alloc_count, alloc_bytes, free_count, free_bytes;
};

static _Atomic(struct row *) table; /* SLOT_COUNT rows, or NULL; set once */
static struct row others;           /* site 0: what found no row */
static hak_atomic_u64 site_count;   /* keys set, and being set */

/* Fibonacci hashing (Knuth, vol. 3, 6.4): sites are addresses, equal in their low and high bits. */
static size_t slot_first(hak_site_t site) {
    return (size_t)(((uint64_t)site * 0x9e3779b97f4a7c15u) >> (64 - SLOT_BITS));
}

static struct row *table_map(void) {
    struct row *fresh = hak_os_map(SLOT_COUNT * sizeof *fresh), *there = NULL;
    if (!fresh || hak_cas(&table, &there, fresh))
        return fresh;
    hak_os_unmap(fresh, SLOT_COUNT * sizeof *fresh); /* another thread was first */
    return there;
}

/* The site's row, or the empty slot where it would stand. */
static struct row *row_find(struct row *rows, hak_site_t site) {
    for (size_t slot = slot_first(site);; slot = (slot + 1) % SLOT_COUNT) {
        /* relaxed: the key is all that is published; a row's counts start at 0 as the program does */
        uintptr_t there = hak_load_relaxed(&rows[slot].site);
        if (there == site || there == 0)
            return &rows[slot];
    }
}

static struct row *row_insert(struct row *rows, hak_site_t site) {
    /* reserved first: the limit holds however many threads come at once */
    if (hak_load_relaxed(&site_count) >= HAK_SITE_COUNT_MAX)
        return &others;
    if (hak_add(&site_count, 1) >= HAK_SITE_COUNT_MAX) {
        hak_add(&site_count, (uint64_t)-1);
        return &others;
    }
    for (;;) {
        struct row *row = row_find(rows, site);
        uintptr_t there = 0;
        if (hak_load_relaxed(&row->site) == 0 && hak_cas(&row->site, &there, site))
            return row;
        if (hak_load_relaxed(&row->site) == site) {
            hak_add(&site_count, (uint64_t)-1); /* another thread was first with the same site */
            return row;
        }
    }
}

void hak_site_note_alloc(hak_site_t site, size_t bytes) {
    if (!site)
        return;
    struct row *rows = hak_load_acquire(&table);
    if (HAK_UNLIKELY(!rows))
        rows = table_map();
    struct row *row = rows ? row_find(rows, site) : &others;
    if (HAK_UNLIKELY(hak_load_relaxed(&row->site) != site) && rows)
        row = row_insert(rows, site);
    hak_add(&row->alloc_count, 1);
    hak_add(&row->alloc_bytes, bytes);
}

void hak_site_note_free(hak_site_t site, size_t bytes) {
    if (!site)
        return;
    struct row *rows = hak_load_acquire(&table), *row = rows ? row_find(rows, site) : &others;
    if (HAK_UNLIKELY(hak_load_relaxed(&row->site) != site))
        row = &others;
    hak_add(&row->free_count, 1);
    hak_add(&row->free_bytes, bytes);
}

static void stats_from(struct hak_site_stats *stats, struct row *row, hak_site_t site) {
    stats->site = site;
    stats->alloc_count = hak_load_relaxed(&row->alloc_count);
    stats->alloc_bytes = hak_load_relaxed(&row->alloc_bytes);
    stats->free_count = hak_load_relaxed(&row->free_count);
    stats->free_bytes = hak_load_relaxed(&row->free_bytes);
}

HAK_EXPORT size_t hak_site_stats(struct hak_site_stats *stats, size_t count_max) {
    struct row *rows = hak_load_acquire(&table);
    size_t count = 0;
    if (rows && hak_load_relaxed(&site_count) != 0)
        for (size_t slot = 0; slot < SLOT_COUNT; slot++) {
            hak_site_t site = hak_load_relaxed(&rows[slot].site);
            if (!site)
                continue;
            if (count < count_max)
                stats_from(&stats[count], &rows[slot], site);
            count++;
        }
    if (hak_load_relaxed(&others.alloc_count) || hak_load_relaxed(&others.free_count)) {
        if (count < count_max)
            stats_from(&stats[count], &others, 0);
        count++;
    }
    return count;
}
