/* region.c - reserving the window and making parts of it usable.
 *
 * Threads:   two threads may start at once (a dlopen into a running program): both reserve, one wins by
 *            CAS, the other gives its reservation back.
 * Invariant: see region.h.
 */
#include "memory/region.h"

#include "base/word.h"
#include "memory/chunk.h"
#include "os/os.h"

#include <errno.h>

struct hak_window hak_window;
struct hak_region hak_region;

enum {
    WINDOW_SHIFT_DEFAULT = 40, /* 1 TiB */
    WINDOW_SHIFT_MIN = 26,     /* 64 MiB */
    WINDOW_SHIFT_LIMITED_MAX = 36,
    PIECE_GRANULES = 4,        /* 256 KiB: what is mapped at a time under RLIMIT_AS */
    COMMIT_GRANULES_MAX = 32 * 16, /* 32 MiB: growth steps double up to here */
};

struct layout {
    size_t page, window, records, meta, chunks, fork;
};

static struct layout layout_for(unsigned window_shift) {
    struct layout l;
    l.page = hak_os_page_bytes();
    l.window = (size_t)1 << window_shift;
    l.records = hak_round_up((l.window >> HAK_GRANULE_SHIFT) * sizeof(struct hak_granule), l.page);
    l.meta = hak_round_up((l.window / HAK_CHUNK_BYTES) * HAK_META_BYTES, l.page);
    l.chunks = hak_round_up((l.window / HAK_CHUNK_BYTES) * sizeof(struct hak_chunk), l.page);
    l.fork = l.page;
    return l;
}

static size_t layout_front(const struct layout *l) { return l->records + l->meta + l->chunks + l->fork; }

static void publish(const struct layout *l, uintptr_t base, bool on_demand) {
    hak_region.meta = base - l->records - l->meta;
    hak_region.chunk_count = l->window / HAK_CHUNK_BYTES;
    hak_region.page_shift = hak_word_first(l->page);
    hak_region.mapped_on_demand = on_demand;
    hak_region.reserved_bytes = layout_front(l) + l->window;
    hak_region.fork_page = (hak_atomic_u32 *)(hak_region.meta - l->chunks - l->fork);
    hak_region.fork_page_wipes = hak_os_wipe_on_fork((void *)(uintptr_t)hak_region.fork_page, l->fork);
    hak_store_relaxed(hak_region.fork_page, 1);
    hak_window.base = base;
    hak_window.records = base - sizeof(struct hak_granule);
    /* release: pairs with nothing in free(), which needs no more than to see 0 or the truth */
    __atomic_store_n(&hak_window.bytes, l->window, __ATOMIC_RELEASE);
}

static bool start_reserved(unsigned shift, bool exact) {
    struct layout l = {0};
    char *start = NULL;
    unsigned wanted = shift;
    for (; shift >= WINDOW_SHIFT_MIN && !start; shift--) {
        l = layout_for(shift);
        start = hak_os_reserve(layout_front(&l) + l.window + HAK_CHUNK_BYTES);
        if (start) break;
    }
    if (!start) return false;
    if (shift < wanted && !exact && shift >= WINDOW_SHIFT_MIN + 2) {
        /* less was granted than asked for: leave three quarters to the program (valgrind grants 32 GiB) */
        hak_os_unmap(start, layout_front(&l) + l.window + HAK_CHUNK_BYTES);
        l = layout_for(shift - 2);
        start = hak_os_reserve(layout_front(&l) + l.window + HAK_CHUNK_BYTES);
        if (!start) return false;
    }
    size_t total = layout_front(&l) + l.window + HAK_CHUNK_BYTES;
    uintptr_t base = hak_round_up((uintptr_t)start + layout_front(&l), HAK_CHUNK_BYTES);
    hak_os_no_huge_pages(start, total); /* also where the system's setting is "always" */
    uintptr_t fork = base - layout_front(&l);
    if (hak_os_readable((void *)(base - l.records), l.records) != 0 || hak_os_commit((void *)fork, l.fork) != 0) {
        hak_os_unmap(start, total);
        return false;
    }
    publish(&l, base, false);
    return true;
}

/* RLIMIT_AS counts what is mapped, PROT_NONE too: reserve nothing. The window lies so far below where the
 * kernel maps next that no mapping but one with an address of its own can land in it: all of the process's
 * mappings together are no longer than the limit. */
static bool start_limited(size_t limit) {
    unsigned shift = WINDOW_SHIFT_MIN;
    while (shift < WINDOW_SHIFT_LIMITED_MAX && ((size_t)1 << shift) < limit) shift++;
    struct layout l = layout_for(shift);
    void *probe = hak_os_map(l.page);
    if (!probe) return false;
    hak_os_unmap(probe, l.page);
    size_t distance = 4 * l.window + layout_front(&l);
    for (unsigned try = 0; try < 8; try++) {
        if ((uintptr_t)probe <= distance * (try + 1)) return false;
        uintptr_t base = hak_round_down((uintptr_t)probe - distance * (try + 1) + layout_front(&l), HAK_CHUNK_BYTES);
        uintptr_t fork = base - layout_front(&l);
        if (hak_os_map_at((void *)(base - l.records), l.records) != 0) continue;
        if (hak_os_map_at((void *)fork, l.fork + l.chunks) == 0) {
            publish(&l, base, true);
            return true;
        }
        hak_os_unmap((void *)(base - l.records), l.records);
    }
    return false;
}

bool hak_region_start(size_t wanted_gb) {
    static hak_atomic_u32 state; /* 0 nobody yet, 1 somebody is at it, 2 there, 3 refused */
    for (;;) {
        uint32_t seen = hak_load_acquire(&state);
        if (seen == 2) return true;
        if (seen == 1) continue; /* two threads' first calls at once, once in a process's life: some 10 us */
        if (hak_cas(&state, &seen, 1)) break;
    }
    size_t limit = hak_os_address_limit();
    unsigned shift = WINDOW_SHIFT_DEFAULT;
    if (wanted_gb) {
        shift = 30;
        while (shift < 47 && ((size_t)1 << shift) < wanted_gb << 30) shift++;
    }
    bool started = limit == SIZE_MAX ? start_reserved(shift, wanted_gb != 0) || start_limited(SIZE_MAX)
                                     : start_limited(limit);
    hak_store_release(&state, started ? 2u : 0u);
    return started;
}

/* --- committing --- */

static bool commit_reserved(size_t end) {
    uint64_t committed = hak_load_acquire(&hak_region.committed_granules);
    if (end <= committed) return true;
    size_t limit = hak_region.chunk_count * HAK_CHUNK_GRANULES;
    size_t step = committed < HAK_CHUNK_GRANULES ? HAK_CHUNK_GRANULES : committed;
    if (step > COMMIT_GRANULES_MAX) step = COMMIT_GRANULES_MAX;
    size_t page = (size_t)1 << hak_region.page_shift;
    for (size_t wanted = hak_round_up(end > committed + step ? end : committed + step, HAK_CHUNK_GRANULES);;
         wanted = hak_round_up(end, HAK_CHUNK_GRANULES)) {
        if (wanted > limit) wanted = limit;
        /* two threads may do the same: committing twice changes nothing */
        uintptr_t records = hak_round_down(hak_window.base - wanted * sizeof(struct hak_granule), page);
        uintptr_t old_records = hak_round_down(hak_window.base - committed * sizeof(struct hak_granule), page);
        uintptr_t data = (uintptr_t)hak_granule_address(committed);
        uintptr_t data_end = (uintptr_t)hak_granule_address(wanted);
        uintptr_t meta = hak_meta_at(committed / HAK_CHUNK_GRANULES);
        uintptr_t meta_end = hak_round_up(hak_meta_at(wanted / HAK_CHUNK_GRANULES), page);
        int result = committed == 0
                         ? hak_os_commit((void *)records, data_end - records) /* they touch at the base */
                         : hak_os_commit((void *)data, data_end - data);
        if (result == 0 && committed != 0 && records != old_records)
            result = hak_os_commit((void *)records, old_records - records);
        if (result == 0) result = hak_os_commit((void *)hak_round_down(meta, page), meta_end - meta);
        if (result == 0) {
            while (committed < wanted && !hak_cas_weak(&hak_region.committed_granules, &committed, wanted)) {
            }
            return true;
        }
        if (wanted <= hak_round_up(end, HAK_CHUNK_GRANULES)) return false;
    }
}

/* -EEXIST: another thread was faster with this piece. Nothing foreign can be there, see start_limited. */
static bool map_pieces(size_t granule, size_t count) {
    size_t bytes = count * HAK_GRANULE_BYTES;
    int result = hak_os_map_at(hak_granule_address(granule), bytes);
    if (result == 0) {
        hak_add(&hak_region.mapped_bytes, bytes);
        return true;
    }
    if (result != -EEXIST) return false;
    if (count == PIECE_GRANULES) return true;
    for (size_t i = 0; i < count; i += PIECE_GRANULES)
        if (!map_pieces(granule + i, PIECE_GRANULES)) return false;
    return true;
}

static bool commit_on_demand(size_t granule, size_t end) {
    while (granule < end) {
        size_t number = granule / HAK_CHUNK_GRANULES;
        struct hak_chunk *chunk = hak_chunk_at(number);
        size_t chunk_start = number * HAK_CHUNK_GRANULES;
        size_t stop = chunk_start + HAK_CHUNK_GRANULES < end ? chunk_start + HAK_CHUNK_GRANULES : end;
        unsigned first = (unsigned)hak_round_down(granule - chunk_start, PIECE_GRANULES);
        unsigned last = (unsigned)hak_round_up(stop - chunk_start, PIECE_GRANULES);
        uint64_t missing = hak_word_mask(first, last - first) & ~hak_load_acquire(&chunk->mapped);
        while (missing) {
            unsigned from = hak_word_first(missing);
            uint64_t gap = ~(missing >> from);
            unsigned length = gap ? hak_word_first(gap) : 64 - from;
            if (!map_pieces(chunk_start + from, length)) return false;
            hak_or(&chunk->mapped, hak_word_mask(from, length));
            missing &= ~hak_word_mask(from, length);
        }
        granule = stop;
    }
    return true;
}

bool hak_region_commit(size_t granule, size_t count) {
    return hak_region.mapped_on_demand ? commit_on_demand(granule, granule + count)
                                       : commit_reserved(granule + count);
}

bool hak_region_commit_meta(size_t chunk) {
    if (!hak_region.mapped_on_demand) return true; /* came with the granules */
    struct hak_chunk *c = hak_chunk_at(chunk);
    if (hak_load_acquire(&c->meta_ready)) return true;
    int result = hak_os_map_at((void *)hak_meta_at(chunk), HAK_META_BYTES);
    if (result != 0 && result != -EEXIST) return false;
    hak_store_release(&c->meta_ready, 1);
    return true;
}

bool hak_region_commit_chunk(size_t chunk) {
    if (hak_region.mapped_on_demand) return true;
    static hak_atomic_u64 ready; /* chunk structs that are read-write */
    if (chunk < hak_load_acquire(&ready)) return true;
    size_t page = (size_t)1 << hak_region.page_shift;
    uint64_t old = hak_load_acquire(&ready);
    uintptr_t start = hak_round_down((uintptr_t)hak_chunk_at(chunk), page);
    uintptr_t end = hak_region.meta - old * sizeof(struct hak_chunk); /* a page's start */
    if (start < end && hak_os_commit((void *)start, end - start) != 0) return false;
    uint64_t now = (hak_region.meta - start) / sizeof(struct hak_chunk);
    while (old < now && !hak_cas_weak(&ready, &old, now)) {
    }
    return true;
}
