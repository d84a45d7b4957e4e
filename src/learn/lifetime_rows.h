/* lifetime_rows.h - lifetime.c's table of sites: a row each, found by a key in a few slots.
 *
 * Rows:      once all are given, one of which nothing is known any more becomes another site's (ROW_VACANT; lifetime.c says when). A slot that named it
 *            goes on to do so, which harms nobody: whose a row is its key says, not the slot.
 * Threads:   any. Who decides (lifetime.c's lock) makes rows vacant, and he alone: a row that is ready for him stays whose it is.
 */
#ifndef HAK_LEARN_LIFETIME_ROWS_H
#define HAK_LEARN_LIFETIME_ROWS_H

#include "heap/key.h"
#include "learn/lifetime.h"

enum { SITES_MAX = 1024, SLOTS = 2048 };

struct row {
    const void *address;
    uint32_t height, class_index;
    hak_atomic_u32 sampled, alive, dead, is_long;
};

static struct row rows[SITES_MAX];            /* row 0 is nobody's: what found no row */
static hak_atomic_u32 row_count = 1;
static _Atomic(uint16_t) slots[SLOTS];        /* row, by key */
static hak_atomic_u64 rows_key[SITES_MAX];    /* odd while the row may be read; 0 before */
static hak_atomic_u32 refused;                /* sites that found no row since sums were last halved */
static hak_atomic_u32 vacant_from;            /* row_new() begins here */

enum { ROW_VACANT = 2, ROW_TAKEN = 4, TRIES = 16 };
HAK_STATIC(ROW_VACANT % 2 == 0 && ROW_TAKEN % 2 == 0); /* hak_site_key() is odd */

static void row_write(unsigned row, const void *address, uint32_t height, unsigned class_index, uint64_t key) {
    /* pairs with row_read(): who sees a new field sees that the key is not the old one */
    __atomic_store_n(&rows[row].address, address, __ATOMIC_RELEASE);
    __atomic_store_n(&rows[row].height, height, __ATOMIC_RELEASE);
    __atomic_store_n(&rows[row].class_index, class_index, __ATOMIC_RELEASE);
    hak_store_release(&rows_key[row], key);
}

static bool row_claim(unsigned row) {
    uint64_t key = ROW_VACANT;
    return hak_load_relaxed(&rows_key[row]) == key && hak_cas(&rows_key[row], &key, ROW_TAKEN);
}

/* One that was never given, or is vacant; 0: there is none. */
static unsigned row_new(void) {
    uint32_t row = hak_load_relaxed(&row_count);
    while (row < SITES_MAX)
        if (hak_cas_weak(&row_count, &row, row + 1)) return row;
    for (row = hak_load_relaxed(&vacant_from); row < SITES_MAX && !row_claim(row); row++) continue;
    hak_store_relaxed(&vacant_from, row + 1);
    return row < SITES_MAX ? row : 0;
}

/* In the first slot of a key's that is empty, or of which the row is vacant; 0: there is no room for it. */
static unsigned row_make(unsigned first, const void *address, uint32_t height, unsigned class_index, uint64_t key) {
    for (unsigned tried = 0; tried < TRIES; tried++) {
        _Atomic(uint16_t) *slot = &slots[(first + tried) % SLOTS];
        uint16_t there = hak_load_relaxed(slot);
        bool is_empty = there == 0;
        unsigned row = is_empty ? row_new() : row_claim(there) ? there : 0;
        if (row != 0) {
            row_write(row, address, height, class_index, key);
            if (!is_empty || hak_cas(slot, &there, (uint16_t)row)) return row;
            hak_store_release(&rows_key[row], ROW_VACANT); /* another thread was first, which is rare */
            return 0;
        }
        if (is_empty) break;
    }
    hak_add(&refused, 1);
    return 0;
}

static unsigned row_find(const void *address, uint32_t height, unsigned class_index) {
    uint64_t key = hak_site_key(address, height, class_index);
    unsigned first = (unsigned)(key >> 53);
    for (unsigned tried = 0; tried < TRIES; tried++) {
        uint16_t there = hak_load_acquire(&slots[(first + tried) % SLOTS]); /* pairs with row_make()'s CAS: the row is written */
        if (there == 0) break;
        if (hak_load_relaxed(&rows_key[there]) == key) return there;
    }
    return row_make(first, address, height, class_index, key);
}

/* Written whole; another thread may be at the others. */
static bool row_ready(unsigned row) { return hak_load_acquire(&rows_key[row]) & 1; }

/* Whose it is, for who does not decide: it may be given to another site meanwhile. */
static bool row_read(unsigned row, struct hak_lifetime_site *site) {
    uint64_t key = hak_load_acquire(&rows_key[row]);
    if (!(key & 1)) return false;
    site->address = __atomic_load_n(&rows[row].address, __ATOMIC_ACQUIRE);
    site->height = __atomic_load_n(&rows[row].height, __ATOMIC_ACQUIRE) << 3;
    site->class_index = __atomic_load_n(&rows[row].class_index, __ATOMIC_ACQUIRE);
    site->sampled = hak_load_relaxed(&rows[row].sampled);
    site->alive = hak_load_relaxed(&rows[row].alive);
    site->dead = hak_load_relaxed(&rows[row].dead);
    site->is_long = hak_load_relaxed(&rows[row].is_long) != 0;
    return hak_load_relaxed(&rows_key[row]) == key;
}

#endif
