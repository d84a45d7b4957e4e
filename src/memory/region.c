/* region.c - finding a place for the window, and mapping parts of it. See region.h. */
#include "memory/region.h"

#include "base/word.h"
#include "memory/chunk.h"
#include "os/os.h"
#include "os/stack.h"

#include <errno.h>

struct hak_window hak_window;
struct hak_region hak_region;

enum {
    WINDOW_SHIFT_MAX = 40,     /* 1 TiB, but for the option region_gb */
    WINDOW_SHIFT_MIN = 26,     /* 64 MiB */
    LIMITED_SHIFT_ENOUGH = 36, /* under RLIMIT_AS rather a smaller window than none */
    PIECE_GRANULES = 4,        /* 256 KiB */
    GROWTH_CHUNKS_MAX = 8,     /* data is mapped in steps that double up to here */
    PROBED_MORE_THAN = 8,      /* chunks; 1 MiB of metadata for so many */
    CHUNKS_MAX = 1 << 18 << 4, /* of 16 TiB */
};

static _Atomic(uint8_t) units[CHUNKS_MAX / 8];

static size_t records_bytes(size_t chunks) { return chunks * HAK_CHUNK_GRANULES * sizeof(struct hak_granule); }

static int map_records(size_t unit, size_t count) {
    size_t bytes = records_bytes((size_t)1 << hak_region.unit_shift);
    return hak_os_map_at((void *)(hak_window.base - (unit + count) * bytes), count * bytes);
}

/* free() may look at the records of all units up to here. */
static void window_reaches(size_t unit) {
    size_t bytes = (unit << hak_region.unit_shift) * HAK_CHUNK_BYTES, seen = __atomic_load_n(&hak_window.bytes, __ATOMIC_RELAXED);
    while (seen < bytes &&
           !__atomic_compare_exchange_n(&hak_window.bytes, &seen, bytes, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

bool hak_unit_ready(size_t chunk) {
    return hak_load_acquire(&units[chunk >> hak_region.unit_shift]) == HAK_PART_READY;
}

/* --- taking parts: from NONE to TAKEN by CAS, a run of them all or nothing --- */

static bool take_state(_Atomic(uint8_t) *state) {
    uint8_t none = HAK_PART_NONE;
    return hak_cas(state, &none, HAK_PART_TAKEN);
}

/* How a mapping went, as the state of its `count` parts: one part alone at which something foreign lies is given
 * up for good, a longer run is tried elsewhere. */
static uint8_t state_after(int result, size_t count) {
    return result == 0 ? HAK_PART_READY : result == -EEXIST && count == 1 ? HAK_PART_FOREIGN : HAK_PART_NONE;
}

/* EBUSY: another thread has taken a part. The kernel says EAGAIN where too much would be locked. */
static enum hak_ready ready_after(int result) {
    return result == 0 ? HAK_READY : result == -EEXIST || result == -EBUSY ? HAK_READY_ELSEWHERE : HAK_READY_REFUSED;
}

HAK_INLINE int meta_map(size_t unit, size_t count) {
    void *meta = (void *)hak_unit_meta(unit);
    int result = hak_os_map_at(meta, count * hak_region.unit_meta_bytes);
    if (result == 0 && (result = map_records(unit, count)) != 0) hak_os_unmap(meta, count * hak_region.unit_meta_bytes);
    return result;
}

/* Of a long run the bytes come first, for a moment: where the kernel refuses them, what would describe them does not stay behind. Nobody
 * else maps in units that this thread has taken. The last chunk is needed in part. */
static HAK_COLD HAK_NOINLINE int meta_map_probing(size_t unit, size_t count, size_t chunk, size_t chunks) {
    void *data = hak_granule_address(chunk * HAK_CHUNK_GRANULES);
    size_t bytes = (chunks - 1) * HAK_CHUNK_BYTES + HAK_GRANULE_BYTES;
    int probed = hak_os_map_at(data, bytes), result;
    if (probed != 0 && probed != -EEXIST) return probed;
    result = meta_map(unit, count);
    if (probed == 0) hak_os_unmap(data, bytes);
    return result;
}

/* For the chunks from `chunk` to `end`. */
static enum hak_ready units_map(size_t unit, size_t count, size_t chunk, size_t end) {
    size_t taken = 0, from = unit << hak_region.unit_shift, to = (unit + count) << hak_region.unit_shift;
    if (from < chunk) from = chunk;
    if (to > end) to = end;
    while (taken < count && take_state(&units[unit + taken])) taken++;
    int result = -EBUSY;
    if (taken == count) {
        result = to - from > PROBED_MORE_THAN ? meta_map_probing(unit, count, from, to - from) : meta_map(unit, count);
        if (result == 0) window_reaches(unit + count);
    }
    for (size_t i = 0; i < taken; i++) hak_store_release(&units[unit + i], state_after(result, count));
    return ready_after(result);
}

static enum hak_ready data_map(size_t chunk, size_t count) {
    size_t taken = 0;
    while (taken < count && take_state(&hak_chunk_at(chunk + taken)->data_state)) taken++;
    int result = -EBUSY;
    if (taken == count) result = hak_os_map_at(hak_granule_address(chunk * HAK_CHUNK_GRANULES), count * HAK_CHUNK_BYTES);
    if (result == 0) hak_add(&hak_region.mapped_bytes, count * HAK_CHUNK_BYTES);
    for (size_t i = 0; i < taken; i++) hak_store_release(&hak_chunk_at(chunk + i)->data_state, state_after(result, count));
    return ready_after(result);
}

HAK_COLD enum hak_ready hak_region_make_ready(size_t chunk, size_t count) {
    size_t end = chunk + count;
    if (end > hak_region.chunk_count) return HAK_READY_REFUSED;
    size_t unit = chunk >> hak_region.unit_shift, unit_end = ((end - 1) >> hak_region.unit_shift) + 1;
    while (unit < unit_end) {
        if (hak_load_acquire(&units[unit]) == HAK_PART_READY) {
            unit++;
            continue;
        }
        size_t run = 1;
        while (unit + run < unit_end && hak_load_relaxed(&units[unit + run]) == HAK_PART_NONE) run++;
        enum hak_ready ready = units_map(unit, run, chunk, end);
        if (ready != HAK_READY) return ready;
    }
    if (hak_region.is_limited) return HAK_READY;
    while (chunk < end) {
        if (hak_load_acquire(&hak_chunk_at(chunk)->data_state) == HAK_PART_READY) {
            chunk++;
            continue;
        }
        size_t run = 1;
        while (chunk + run < end && hak_load_relaxed(&hak_chunk_at(chunk + run)->data_state) == HAK_PART_NONE) run++;
        /* a little more than is asked for, as the heap grows: fewer system calls */
        size_t more = chunk < GROWTH_CHUNKS_MAX ? chunk : GROWTH_CHUNKS_MAX;
        while (run < more && chunk + run < (unit_end << hak_region.unit_shift) && chunk + run < hak_region.chunk_count &&
               hak_load_relaxed(&hak_chunk_at(chunk + run)->data_state) == HAK_PART_NONE)
            run++;
        enum hak_ready ready = data_map(chunk, run);
        if (ready != HAK_READY && chunk + run > end) ready = data_map(chunk, end - chunk);
        if (ready != HAK_READY) return ready;
    }
    return HAK_READY;
}

bool hak_region_in_hands(size_t chunk) {
    uint8_t unit = hak_load_acquire(&units[chunk >> hak_region.unit_shift]);
    if (unit != HAK_PART_READY) return unit == HAK_PART_TAKEN;
    return !hak_region.is_limited && hak_load_acquire(&hak_chunk_at(chunk)->data_state) == HAK_PART_TAKEN;
}

bool hak_region_is_foreign(size_t chunk) {
    uint8_t unit = hak_load_acquire(&units[chunk >> hak_region.unit_shift]);
    if (unit != HAK_PART_READY) return unit == HAK_PART_FOREIGN;
    return !hak_region.is_limited && hak_load_acquire(&hak_chunk_at(chunk)->data_state) == HAK_PART_FOREIGN;
}

/* --- pieces, under RLIMIT_AS --- */

/* Two spans may lie in one piece, and two threads come to map it. Who sets its bit in `pieces` maps it; `mapped` follows. What
 * is there already is then foreign: the kernel comes near when the process has passed over a multiple of the window's size, which it
 * can without using it up, or after its limit was raised. */
enum { WAITS_MAX = 400 }; /* some 20 ms */

static uint16_t piece_bit(size_t granule) { return (uint16_t)(1u << (granule % HAK_CHUNK_GRANULES / PIECE_GRANULES)); }
static uint64_t piece_mask(size_t granule) {
    return hak_word_mask((unsigned)hak_round_down(granule % HAK_CHUNK_GRANULES, PIECE_GRANULES), PIECE_GRANULES);
}

/* The `count` granules are whole pieces of one chunk that this thread has claimed. */
static enum hak_ready pieces_map_claimed(struct hak_chunk *chunk, size_t granule, size_t count) {
    int result = hak_os_map_at(hak_granule_address(granule), count * HAK_GRANULE_BYTES);
    uint64_t mask = hak_word_mask((unsigned)(granule % HAK_CHUNK_GRANULES), (unsigned)count);
    if (result == 0) {
        hak_add(&hak_region.mapped_bytes, count * HAK_GRANULE_BYTES);
        hak_or(&chunk->mapped, mask);
        return HAK_READY;
    }
    if (result == -EEXIST && count == PIECE_GRANULES) {
        hak_or(&chunk->foreign, piece_bit(granule));
        return HAK_READY_ELSEWHERE;
    }
    enum hak_ready all = HAK_READY_REFUSED;
    for (size_t i = 0; i < count; i += PIECE_GRANULES) {
        enum hak_ready ready = HAK_READY_REFUSED;
        if (result == -EEXIST) ready = pieces_map_claimed(chunk, granule + i, PIECE_GRANULES);
        else hak_and(&chunk->pieces, (uint16_t)~piece_bit(granule + i));
        if (i == 0 || ready == HAK_READY_REFUSED || (ready == HAK_READY_ELSEWHERE && all == HAK_READY)) all = ready;
    }
    return all;
}

/* Another thread has claimed it, or had, in a forked child; then it is given up like what is foreign. HAK_READY_REFUSED: he was. */
static enum hak_ready piece_wait(struct hak_chunk *chunk, size_t granule) {
    for (unsigned i = 0;; i++) {
        if (hak_load_acquire(&chunk->mapped) & piece_mask(granule)) return HAK_READY;
        if (hak_load_relaxed(&chunk->foreign) & piece_bit(granule)) return HAK_READY_ELSEWHERE;
        if (!(hak_load_relaxed(&chunk->pieces) & piece_bit(granule))) return HAK_READY_REFUSED;
        if (i == (hak_os_is_forked() ? WAITS_MAX : 100 * WAITS_MAX)) break; /* he may wait for the kernel for long; what is given up stays used */
        hak_os_yield(i);
    }
    hak_or(&chunk->foreign, piece_bit(granule));
    return HAK_READY_ELSEWHERE;
}

/* The pieces around [granule, stop) of one chunk. */
static enum hak_ready pieces_of_chunk(struct hak_chunk *chunk, size_t granule, size_t stop) {
    enum hak_ready all = HAK_READY;
    size_t end = hak_round_up(stop, PIECE_GRANULES), first = hak_round_down(granule, PIECE_GRANULES);
    while (first < end) {
        enum hak_ready ready;
        size_t claimed = 0;
        while (first + claimed < end && !(hak_load_acquire(&chunk->mapped) & piece_mask(first + claimed)) &&
               !(hak_or(&chunk->pieces, piece_bit(first + claimed)) & piece_bit(first + claimed)))
            claimed += PIECE_GRANULES;
        if (claimed) {
            ready = pieces_map_claimed(chunk, first, claimed);
        } else {
            ready = piece_wait(chunk, first);
            if (ready == HAK_READY_REFUSED) continue; /* our turn */
            claimed = PIECE_GRANULES;
        }
        if (ready == HAK_READY_REFUSED) return ready;
        if (ready == HAK_READY_ELSEWHERE) all = ready;
        first += claimed;
    }
    return all;
}

/* Of many pieces those that would be given first stay mapped when the last is refused. So as much is mapped first, for a moment, beyond the
 * window's end; what lies there says nothing. */
static HAK_COLD HAK_NOINLINE bool pieces_may_be_had(size_t granule, size_t count) {
    size_t missing = 0;
    for (size_t end = granule + count, part; granule < end; granule += part) {
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        part = end - granule < HAK_CHUNK_GRANULES - first ? end - granule : HAK_CHUNK_GRANULES - first;
        missing += hak_word_count(~hak_load_relaxed(&hak_chunk_at(granule / HAK_CHUNK_GRANULES)->mapped) & hak_word_mask(first, (unsigned)part));
    }
    if (missing <= PROBED_MORE_THAN * HAK_CHUNK_GRANULES) return true;
    void *beyond = hak_granule_address(hak_region.chunk_count * HAK_CHUNK_GRANULES);
    int result = hak_os_map_at(beyond, missing << HAK_GRANULE_SHIFT);
    if (result == 0) hak_os_unmap(beyond, missing << HAK_GRANULE_SHIFT);
    return ready_after(result) != HAK_READY_REFUSED;
}

HAK_COLD enum hak_ready hak_region_map_pieces_limited(size_t granule, size_t count) {
    enum hak_ready all = HAK_READY;
    if (HAK_UNLIKELY(count > PROBED_MORE_THAN * HAK_CHUNK_GRANULES) && !pieces_may_be_had(granule, count)) return HAK_READY_REFUSED;
    for (size_t end = granule + count; granule < end;) {
        size_t number = granule / HAK_CHUNK_GRANULES, stop = (number + 1) * HAK_CHUNK_GRANULES;
        if (stop > end) stop = end;
        enum hak_ready ready = pieces_of_chunk(hak_chunk_at(number), granule, stop);
        if (ready == HAK_READY_REFUSED) return ready;
        if (ready == HAK_READY_ELSEWHERE) all = ready;
        granule = stop;
    }
    return all;
}

bool hak_region_piece_is_foreign(size_t granule) {
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    return hak_load_relaxed(&chunk->foreign) & piece_bit(granule) && !(hak_load_acquire(&chunk->mapped) & piece_mask(granule));
}

/* --- the start --- */

static void layout(uintptr_t base, unsigned shift, size_t page) {
    size_t unit_chunks = hak_region.is_limited ? 1 : 8;
    while (records_bytes(unit_chunks) < page) unit_chunks *= 2;
    size_t structs = hak_round_up(unit_chunks * sizeof(struct hak_chunk), page);
    hak_region.chunk_count = ((size_t)1 << shift) / HAK_CHUNK_BYTES;
    hak_region.page_shift = hak_word_first(page);
    hak_region.unit_shift = hak_word_first(unit_chunks);
    hak_region.structs_bytes = structs;
    hak_region.unit_meta_bytes = structs + unit_chunks * HAK_META_BYTES;
    size_t unit_count = (hak_region.chunk_count + unit_chunks - 1) / unit_chunks;
    size_t records = hak_round_up(records_bytes(unit_count * unit_chunks), page);
    hak_region.meta = base - records - unit_count * hak_region.unit_meta_bytes;
    hak_region.fork_page = (hak_atomic_u32 *)(hak_region.meta - page);
    hak_window.base = base;
    hak_window.records = base - sizeof(struct hak_granule);
}

static bool try_at(uintptr_t base, unsigned shift, size_t page) {
    layout(base, shift, page);
    void *fork_page = (void *)(uintptr_t)hak_region.fork_page;
    if (hak_os_map_at(fork_page, page) != 0) return false;
    if (hak_region_make_ready(0, 1) != HAK_READY) {
        hak_os_unmap(fork_page, page);
        hak_store_relaxed(&units[0], HAK_PART_NONE);
        return false;
    }
    hak_region.fork_page_wipes = hak_os_wipe_on_fork(fork_page, page);
    hak_store_relaxed(hak_region.fork_page, 1);
    if (hak_region.fork_page_wipes) hak_os_forked_tells((const void *)(uintptr_t)hak_region.fork_page);
    return true;
}

/* Far below, or (valgrind maps upwards) far above, where the kernel has put a first mapping; nearer for smaller
 * windows. Three windows away, so that the process can map twice a window's size before it comes near. */
static bool find_place(unsigned shift, unsigned shift_min) {
    size_t page = hak_os_page_bytes();
    void *probe = hak_os_map(page);
    if (!probe) return false;
    hak_os_unmap(probe, page);
    for (; shift >= shift_min; shift--) {
        size_t away = (size_t)3 << shift;
        for (unsigned i = 0; i < 4; i++) {
            uintptr_t near = (uintptr_t)probe, further = away + (i / 2) * (away / 2);
            if (i % 2 == 0 && near < further + ((size_t)1 << shift)) continue;
            uintptr_t base = i % 2 == 0 ? near - further : near + further;
            if (try_at(hak_round_down(base, HAK_CHUNK_BYTES), shift, page)) return true;
        }
    }
    return false;
}

/* What a thread had begun that this forked child does not have. Its mappings stay, some pages that nobody touches. */
static void start_anew(void) {
    hak_store_relaxed(&units[0], HAK_PART_NONE);
    hak_region.mapped_bytes = 0;
    hak_window.bytes = 0;
}

HAK_COLD bool hak_region_start(size_t wanted_gb) {
    static const uint64_t nobody = 0, started = UINT64_MAX;
    static hak_atomic_u64 state; /* or who is at it: process, thread */
    uint64_t self = (uint64_t)hak_os_pid() << 32 | hak_os_tid(), seen;
    for (unsigned turn = 0;; turn++) {
        seen = hak_load_acquire(&state);
        if (seen == started) return true;
        if (HAK_UNLIKELY(seen == self)) return false; /* a signal handler's, in the middle of it */
        if (seen != nobody && seen >> 32 == self >> 32) hak_os_yield(turn); /* two threads' very first calls at once, after a dlopen */
        else if (hak_cas(&state, &seen, self)) break;
    }
    if (HAK_UNLIKELY(seen != nobody)) start_anew();
    if (self >> 32 == (uint32_t)self) hak_os_stack_is_main();
    size_t limit = hak_os_address_limit();
    unsigned shift = WINDOW_SHIFT_MAX, shift_min = WINDOW_SHIFT_MIN;
    if (wanted_gb) {
        for (shift = 30; shift < 44 && ((size_t)1 << shift) < wanted_gb << 30;) shift++;
    }
    if (limit != SIZE_MAX) {
        hak_region.is_limited = true;
        shift = WINDOW_SHIFT_MIN;
        while (shift < WINDOW_SHIFT_MAX && ((size_t)1 << shift) < limit) shift++;
        shift_min = shift < LIMITED_SHIFT_ENOUGH ? shift : LIMITED_SHIFT_ENOUGH;
    }
    bool is_there = find_place(shift, shift_min);
    hak_store_release(&state, is_there ? started : nobody);
    return is_there;
}
