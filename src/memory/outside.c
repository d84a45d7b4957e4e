/* outside.c - see outside.h. */
#include "memory/outside.h"

#include "base/atomic.h"
#include "base/word.h"
#include "memory/limit.h"
#include "memory/region.h"
#include "os/os.h"

enum { ROWS = 4096, PROBES = 64 };

static struct {
    _Atomic(uintptr_t) address; /* 0 free, 1 taken and not yet known, else the block */
    _Atomic(size_t) bytes;
    hak_atomic_u32 number;
} rows[ROWS];
static hak_atomic_u32 used; /* was a row ever taken? 0 lets every look-up end at once */

static size_t row_first(uintptr_t address) { return (address >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> 52; }
HAK_STATIC(ROWS == 1 << (64 - 52));

static int64_t counted(size_t bytes) { return (int64_t)((bytes + HAK_GRANULE_BYTES - 1) >> HAK_GRANULE_SHIFT); }

static size_t row_find(const void *block) {
    if (hak_load_relaxed(&used) == 0 || (uintptr_t)block < 2) return ROWS;
    for (size_t i = 0, row = row_first((uintptr_t)block); i < PROBES; i++, row = (row + 1) % ROWS)
        if (hak_load_acquire(&rows[row].address) == (uintptr_t)block) return row;
    return ROWS;
}

/* Whatever lies in the window's range would be taken for its own one day: free() asks the records first. */
bool hak_outside_meets_window(uintptr_t start, size_t bytes) {
    uintptr_t end = hak_window.base + hak_region_bytes();
    return start < end && start + bytes > (uintptr_t)hak_region.fork_page;
}

/* The kernel's own choice; once it has come down to the window, a place below that. */
char *hak_outside_map(size_t bytes) {
    char *start = hak_os_map(bytes);
    if (!start || !hak_outside_meets_window((uintptr_t)start, bytes)) return start;
    hak_os_unmap(start, bytes);
    uintptr_t end = (uintptr_t)hak_region.fork_page, lowest = hak_round_up(bytes, HAK_GRANULE_BYTES) + HAK_GRANULE_BYTES;
    for (uintptr_t step = hak_round_up(bytes, HAK_GRANULE_BYTES); end >= lowest + step; end -= step, step *= 2)
        if (hak_os_map_at((void *)(end - step), bytes) == 0) return (char *)(end - step);
    return NULL;
}

void *hak_outside_take(size_t bytes, size_t align) {
    size_t page = hak_os_page_bytes(), slack = align > page ? align : 0;
    if (bytes > PTRDIFF_MAX - page - slack) return NULL;
    bytes = hak_round_up(bytes, page);
    if (hak_limit_refuses((size_t)counted(bytes))) return NULL;
    char *start = hak_outside_map(bytes + slack);
    if (!start) return NULL;
    char *block = (char *)hak_round_up((uintptr_t)start, align > page ? align : page);
    if (block > start) hak_os_unmap(start, (size_t)(block - start));
    if (start + bytes + slack > block + bytes) hak_os_unmap(block + bytes, (size_t)(start + slack - block));
    for (size_t i = 0, row = row_first((uintptr_t)block); i < PROBES; i++, row = (row + 1) % ROWS) {
        uintptr_t none = 0;
        if (!hak_cas(&rows[row].address, &none, 1)) continue;
        hak_store_relaxed(&rows[row].bytes, bytes);
        hak_store_release(&rows[row].address, (uintptr_t)block);
        hak_store_relaxed(&used, 1);
        hak_add(&hak_limit_outside_granules, counted(bytes));
        hak_limit_grew();
        return block;
    }
    hak_os_unmap(block, bytes);
    return NULL;
}

size_t hak_outside_bytes(const void *block) {
    size_t row = row_find(block);
    return row < ROWS ? hak_load_relaxed(&rows[row].bytes) : 0;
}

void *hak_outside_next(size_t *row, size_t *bytes) {
    while (hak_load_relaxed(&used) && *row < ROWS) {
        uintptr_t address = hak_load_acquire(&rows[*row].address);
        *bytes = hak_load_relaxed(&rows[(*row)++].bytes);
        if (address > 1) return (void *)address;
    }
    return NULL;
}

void (*hak_outside_on_end)(uint32_t number);

hak_atomic_u32 *hak_outside_number(const void *block) {
    size_t row = row_find(block);
    return row < ROWS ? &rows[row].number : NULL;
}

/* Where the kernel has no mapping left to split one into two its memory goes back, and the addresses are lost. */
static void unmap(void *block, size_t bytes) {
    struct hak_range range = { block, bytes };
    uint64_t calls = 0;
    if (HAK_UNLIKELY(hak_os_unmap(block, bytes) != 0)) hak_os_return(&range, 1, &calls);
}

bool hak_outside_give(void *block) {
    size_t row = row_find(block);
    if (row == ROWS) return false;
    uintptr_t seen = (uintptr_t)block;
    size_t bytes = hak_load_relaxed(&rows[row].bytes);
    if (!hak_cas(&rows[row].address, &seen, 1)) return false;
    uint32_t number = hak_load_relaxed(&rows[row].number) ? hak_exchange(&rows[row].number, 0) : 0;
    if (number) hak_outside_on_end(number);
    unmap(block, bytes);
    hak_add(&hak_limit_outside_granules, -counted(bytes));
    hak_store_release(&rows[row].address, 0);
    return true;
}
