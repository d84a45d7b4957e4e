/* chunk.c - spans by bit search in chunk words.
 *
 * Threads:   any, without locks: a span inside a chunk is one CAS, a run of chunks a loop of CASes with
 *            rollback. A bit of `room` that is set and should not be costs a longer search; the other way round it would
 *            hide a chunk. Who frees clears `used`, then reads the bit; who clears the bit reads `used` again after; all
 *            four are seq_cst, so that one of the two sees the other.
 *            A note that a handler's longjmp leaves out between is made up for by a neighbour's free, a purge, or a child's rebuild.
 * Measured:  malloc and free of 3 MB blocks at random in a heap of 16 GB: 8 to 14 us with hints where searches begin, 0.3 to 2 us with bits.
 *            Spans that cross from chunk to chunk: docs/experiments.md.
 * Rejected:  free lists of spans by size: they need locks, and the lowest address first is what keeps the
 *            top of the window empty.
 */
#include "memory/chunk.h"

#include "memory/ahead.h"
#include "memory/huge.h"
#include "memory/limit.h"
#include "memory/purge.h"

hak_atomic_u64 hak_chunk_top;

/* May a chunk have room for least[k] granules in a row? In a window of more than TABLE chunks those a multiple of it apart share
 * a bit. A chunk that the top passed before it was ready has all, until it turns out that it cannot be had. */
enum { SIZES = 16, EACH = 6, TABLE = 1 << 18, GROUP = 64 };
/* What spans of one size leave of a chunk must not have the last of these that is not more than that size: with 12 and 20 instead of 13 and 22
 * spans of 13 and 22 granules left so much, and each search looked at each full chunk. More sizes make .bss larger than 2 MiB, where the
 * kernel, if told so, has a huge page for it. */
static const unsigned char least[SIZES] = { 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 22, 24, 32, 40, 48, HAK_CHUNK_GRANULES };
static HAK_ALIGNED(2 * HAK_LINE) struct {
    hak_atomic_u64 for_least[SIZES];
} room[TABLE / GROUP];

/* The last of the sizes that `count` granules need at least. */
static unsigned size_of(size_t count) {
    unsigned k = count <= EACH ? (unsigned)count - 1 : EACH - 1;
    while (k + 1 < SIZES && least[k + 1] <= count) k++;
    return k;
}

static hak_atomic_u64 *room_word(size_t number, unsigned k) { return &room[number % TABLE / GROUP].for_least[k]; }

static bool is_ready(size_t number) { return hak_unit_ready(number) && hak_chunk_ready(number); }

static void room_set(size_t number, unsigned k) {
    hak_atomic_u64 *word = room_word(number, k);
    uint64_t bit = UINT64_C(1) << number % GROUP;
    if (!(atomic_load(word) & bit)) atomic_fetch_or(word, bit);
}

/* Room for so many in a row. */
static HAK_NOINLINE void room_set_to(size_t number, unsigned run) {
    for (unsigned k = 0; k < SIZES && least[k] <= run; k++) room_set(number, k);
}

/* Who reads `used` while another holds a part of it for a moment leaves the bit to him, who gives that back. */
void hak_span_room(size_t number) {
    unsigned run = 0;
    for (uint64_t free = ~hak_load_relaxed(&hak_chunk_at(number)->used); free; free &= free >> 1) run++;
    room_set_to(number, run);
}

/* The same where only what touches these granules, which were given back just now, is new. Who gives its neighbours back at the same
 * moment sees them free, or is seen. */
static HAK_NOINLINE void room_note(size_t number, uint64_t mask) {
    uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used);
    unsigned first = hak_word_first(mask), last = hak_word_last(mask);
    if (HAK_UNLIKELY(used & mask)) { /* somebody has taken a part again */
        hak_span_room(number);
        return;
    }
    uint64_t below = used & ((UINT64_C(1) << first) - 1), above = used >> last >> 1;
    unsigned from = below ? hak_word_last(below) + 1 : 0, to = above ? last + 1 + hak_word_first(above) : HAK_CHUNK_GRANULES;
    room_set_to(number, to - from);
}

static void room_set_all(size_t number) {
    for (unsigned k = 0; k < SIZES; k++) room_set(number, k);
}

/* Nothing was found there. Those that share the bit are looked at as well, also one that somebody made ready just now and
 * that the top is about to pass. */
static void room_clear(size_t number, unsigned k) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    atomic_fetch_and(room_word(number, k), ~(UINT64_C(1) << number % GROUP));
    for (number %= TABLE; number < hak_region.chunk_count; number += TABLE) {
        bool has_room = is_ready(number) ? hak_word_runs(~atomic_load(&hak_chunk_at(number)->used), least[k]) != 0
                                         : number < top && hak_region.chunk_count > TABLE;
        if (has_room) room_set(number, k);
    }
}

/* The first chunk from `number` on that may have room; the top when there is none. */
static HAK_NOINLINE size_t room_next(size_t number, unsigned k, size_t top) {
    for (size_t at = number; at < top; at += GROUP - at % GROUP) {
        uint64_t bits = atomic_load(room_word(at, k)) >> at % GROUP;
        if (bits && at + hak_word_first(bits) < top) return at + hak_word_first(bits);
    }
    return number < top ? top : number;
}

/* The chunks become ready and top moves past them. */
static HAK_COLD enum hak_ready chunks_reach(size_t number, size_t count) {
    uint64_t top = hak_load_acquire(&hak_chunk_top);
    enum hak_ready ready = hak_region_make_ready(number, count);
    if (ready != HAK_READY) return ready;
    for (size_t i = 0; i < count; i++) hak_span_room(number + i); /* before anybody looks for it below the top */
    for (size_t gap = top; gap < number; gap++) room_set_all(gap);
    while (top < number + count && !hak_cas_weak(&hak_chunk_top, &top, number + count)) {
    }
    /* who grows fast is not to wait for the sweep's clock */
    if (HAK_UNLIKELY((number + count) * HAK_CHUNK_GRANULES > HAK_LIMIT_GROUP_GRANULES)) hak_limit_group_look(hak_os_clock_ms());
    return HAK_READY;
}

HAK_NOINLINE int64_t hak_chunk_absent_bytes(struct hak_chunk *chunk, uint64_t mask) {
    int64_t pages = 0;
    for (uint64_t left = hak_load_relaxed(&chunk->partial) & mask; left; left &= left - 1)
        pages += hak_word_count(hak_load_relaxed(&chunk->absent[hak_word_first(left)]));
    return pages << hak_region.page_shift;
}

void hak_granule_leave_absent(size_t granule, unsigned absent) {
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    unsigned at = (unsigned)(granule % HAK_CHUNK_GRANULES);
    hak_store_relaxed(&chunk->absent[at], (uint16_t)absent);
    if (!(hak_load_relaxed(&chunk->partial) >> at & 1)) hak_or(&chunk->partial, UINT64_C(1) << at);
}

/* The granules of `mask` were just taken: how many of them are dirty. */
static size_t note_take_in(struct hak_rush *rush, struct hak_chunk *chunk, uint64_t mask) {
    size_t count = hak_word_count(hak_load_relaxed(&chunk->dirty) & mask);
    hak_rush_note_free(rush, -hak_chunk_resident_bytes(chunk, mask), hak_word_count(mask));
    if (hak_load_relaxed(&chunk->cold) & mask) hak_and(&chunk->cold, ~mask); /* used between two sweeps */
    return count;
}
static size_t note_take(struct hak_chunk *chunk, uint64_t mask) { return note_take_in(NULL, chunk, mask); }

HAK_COLD void hak_chunk_note_gone(struct hak_chunk *chunk, unsigned at, unsigned pages) {
    uint64_t bit = UINT64_C(1) << at, ever = hak_load_relaxed(&chunk->ever);
    unsigned before = ever & bit ? hak_load_relaxed(&chunk->gone[at]) : 0;
    hak_store_relaxed(&chunk->gone[at], (uint16_t)(before | pages));
    if (!(ever & bit)) hak_or(&chunk->ever, bit);
}

HAK_COLD unsigned hak_chunk_take_gone(struct hak_chunk *chunk, unsigned at, unsigned pages) {
    uint64_t bit = UINT64_C(1) << at;
    if (!(hak_load_relaxed(&chunk->ever) & bit)) return 0;
    unsigned before = hak_load_relaxed(&chunk->gone[at]);
    hak_store_relaxed(&chunk->gone[at], (uint16_t)(before & ~pages));
    if (!(before & ~pages)) hak_and(&chunk->ever, ~bit);
    return before & pages;
}

/* The whole span is about to be used: what of it went back once is touched again, and nothing of it is absent. */
static void note_use(size_t granule, size_t count) {
    while (count > 0) {
        struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        unsigned part = count < HAK_CHUNK_GRANULES - first ? (unsigned)count : HAK_CHUNK_GRANULES - first;
        uint64_t mask = hak_word_mask(first, part), again = 0;
        for (uint64_t left = hak_load_relaxed(&chunk->ever) & mask; left; left &= left - 1)
            again += hak_word_count(hak_chunk_take_gone(chunk, hak_word_first(left), hak_granule_pages()));
        if (again) hak_purge_note_retouch(again << hak_region.page_shift, hak_load_relaxed(&chunk->returned_ms));
        hak_chunk_forget_absent(chunk, mask);
        granule += part;
        count -= part;
    }
}

static HAK_ALIGNED(HAK_LINE) hak_atomic_u32 lost_count; /* races for granules */

/* None of `without` is to be in it. */
static size_t take_in_chunk_without(struct hak_rush *rush, size_t number, unsigned count, uint64_t starts_allowed, uint64_t without, size_t *dirty_granules) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t used = hak_load_relaxed(&chunk->used);
    for (;;) {
        uint64_t starts = hak_word_runs(~(used | without), count) & starts_allowed;
        if (!starts) return HAK_NO_GRANULE;
        uint64_t mask = hak_word_mask(hak_word_first(starts), count);
        /* acquire: pairs with the release in hak_span_give(); what was there is ours to overwrite */
        if (hak_cas_weak(&chunk->used, &used, used | mask)) {
            *dirty_granules = note_take_in(rush, chunk, mask);
            return number * HAK_CHUNK_GRANULES + hak_word_first(mask);
        }
        hak_add(&lost_count, 1);
    }
}

static size_t take_in_chunk(struct hak_rush *rush, size_t number, unsigned count, uint64_t starts_allowed, size_t *dirty_granules) {
    return take_in_chunk_without(rush, number, count, starts_allowed, 0, dirty_granules);
}

/* Below the top. The top passes chunks on the way to a run; with one that is far away, thousands. Where the kernel refuses the first of
 * them (RLIMIT_AS), no other is asked for. */
static size_t take_there(struct hak_rush *rush, size_t count, uint64_t allowed, size_t top, size_t *dirty_granules) {
    unsigned k = size_of(count);
    bool is_refused = false;
    for (size_t number = room_next(0, k, top); number < top; number = room_next(number + 1, k, top)) {
        if (!is_ready(number)) {
            enum hak_ready ready = is_refused ? HAK_READY_REFUSED : chunks_reach(number, 1);
            if (ready == HAK_READY_REFUSED) is_refused = true;
            else if (ready != HAK_READY && hak_region_is_foreign(number)) room_clear(number, k);
            if (ready != HAK_READY) continue;
        }
        size_t granule = take_in_chunk(rush, number, (unsigned)count, allowed, dirty_granules);
        if (granule != HAK_NO_GRANULE) return granule;
        if (!hak_word_runs(~hak_load_relaxed(&hak_chunk_at(number)->used), least[k])) room_clear(number, k);
    }
    return HAK_NO_GRANULE;
}

/* The part of a span from `at` to `end` that lies in the chunk of `at`. */
static uint64_t part_mask(size_t at, size_t end) {
    unsigned first = (unsigned)(at % HAK_CHUNK_GRANULES);
    return hak_word_mask(first, end - at < HAK_CHUNK_GRANULES - first ? (unsigned)(end - at) : HAK_CHUNK_GRANULES - first);
}

/* Granules that were taken for a moment are free as before. Who looked meanwhile for what is unseen passed them by. */
static HAK_COLD void give_untouched(size_t number, uint64_t mask) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t unseen = hak_load_relaxed(&chunk->unseen) & mask;
    hak_chunk_release(chunk, mask);
    hak_span_room(number);
    if (unseen) hak_store_release(&hak_purge.unseen, 1);
}

/* Takes it if all of it is free: a loop of CASes, with rollback; a thread that vanishes here leaks what it took, once. Counted is only
 * what was taken as a whole: the sum of free memory has not fallen and risen if it was not. */
static HAK_COLD bool take_at(size_t granule, size_t count, size_t *dirty_granules) {
    size_t end = granule + count, at = granule, dirty = 0;
    for (uint64_t mask; at < end; at += hak_word_count(mask)) {
        struct hak_chunk *chunk = hak_chunk_at(at / HAK_CHUNK_GRANULES);
        uint64_t used = hak_load_relaxed(&chunk->used);
        mask = part_mask(at, end);
        while (!(used & mask) && !hak_cas_weak(&chunk->used, &used, used | mask)) {
        }
        if (used & mask) break;
    }
    bool is_taken = at == end;
    for (size_t back = granule; back < at;) {
        uint64_t mask = part_mask(back, at);
        if (is_taken) dirty += note_take(hak_chunk_at(back / HAK_CHUNK_GRANULES), mask);
        else give_untouched(back / HAK_CHUNK_GRANULES, mask);
        back += hak_word_count(mask);
    }
    *dirty_granules = dirty;
    return is_taken;
}

/* --- from one chunk into the next --- */

static unsigned free_before(uint64_t used) { return used ? hak_word_first(used) : HAK_CHUNK_GRANULES; }
static unsigned free_after(uint64_t used) { return used ? HAK_CHUNK_GRANULES - 1 - hak_word_last(used) : HAK_CHUNK_GRANULES; }

/* From the free end of this chunk on, if as much is free in a row; behind the last come new ones. What is longer than 8 MiB begins where a
 * huge page may, or it would have one less: 6,000 faults instead of 2,500 in every_size/one, for 3% of its peak. */
static HAK_COLD size_t take_across_from(size_t number, size_t count, size_t top, size_t *dirty_granules) {
    unsigned after = free_after(hak_load_relaxed(&hak_chunk_at(number)->used));
    if (count > 2 * HAK_CHUNK_GRANULES) after -= after % HAK_HALF_GRANULES;
    size_t granule = (number + 1) * HAK_CHUNK_GRANULES - after, free = after;
    if (after == 0) return HAK_NO_GRANULE;
    while (free < count && ++number < top) {
        if (!is_ready(number)) return HAK_NO_GRANULE;
        uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used);
        free += free_before(used);
        if (used && free < count) return HAK_NO_GRANULE;
    }
    if (free < count) {
        size_t chunks = (count - free - 1) / HAK_CHUNK_GRANULES + 1;
        if (chunks > hak_region.chunk_count - number || chunks_reach(number, chunks) != HAK_READY) return HAK_NO_GRANULE;
    }
    return take_at(granule, count, dirty_granules) ? granule : HAK_NO_GRANULE;
}

/* From the free end of the chunk before, if it has one, into new chunks or a run that begins at this one. */
static HAK_COLD size_t take_before(size_t number, size_t count, size_t top, size_t *dirty_granules) {
    return number > 0 && is_ready(number - 1) ? take_across_from(number - 1, count, top, dirty_granules) : HAK_NO_GRANULE;
}

/* Blocks of some MiB do not fill a chunk: without this the rest of it is for smaller ones only. Of the chunks that the span lies in one has at
 * least half of it, or is free as a whole. */
static HAK_COLD size_t take_across(size_t count, size_t *dirty_granules) {
    enum { TRIES = 64 };
    size_t top = hak_load_acquire(&hak_chunk_top);
    unsigned k = size_of(count < 2 * HAK_CHUNK_GRANULES ? (count + 1) / 2 : HAK_CHUNK_GRANULES), tries = 0;
    for (size_t number = room_next(0, k, top); number < top && tries < TRIES; number = room_next(number + 1, k, top)) {
        if (!is_ready(number)) { /* the top passed it; there may be any number of them */
            tries++;
            continue;
        }
        uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used);
        size_t granule = HAK_NO_GRANULE;
        if (!hak_word_runs(~used, least[k])) {
            room_clear(number, k);
            continue;
        }
        tries++;
        if (free_before(used)) granule = take_before(number, count, top, dirty_granules);
        if (granule == HAK_NO_GRANULE) granule = take_across_from(number, count, top, dirty_granules);
        if (granule != HAK_NO_GRANULE) return granule;
    }
    return HAK_NO_GRANULE;
}

enum { TURNS_MAX = 200 };
/* What a thread keeps for itself (heap/kept.h) lies in one chunk. */
enum { ACROSS_MORE_THAN = 32 };

/* From some former top up to here all chunks are foreign, for good: without it each malloc that fails walks the whole window. The top
 * itself stays, for the sweep walks up to it. */
static hak_atomic_u64 foreign_end;

static void foreign_pass(uint64_t end) {
    uint64_t seen = hak_load_relaxed(&foreign_end);
    while (seen < end && !hak_cas_weak(&foreign_end, &seen, end)) {
    }
}

static size_t take_small(struct hak_rush *rush, size_t count, size_t align, size_t *dirty_granules) {
    uint64_t allowed = align > 1 ? hak_word_multiples((unsigned)align) : ~UINT64_C(0);
    size_t top = hak_load_acquire(&hak_chunk_top);
    size_t granule = take_there(rush, count, allowed, top, dirty_granules);
    if (granule == HAK_NO_GRANULE && align == 1 && count > ACROSS_MORE_THAN) {
        granule = take_across(count, dirty_granules);
        if (granule == HAK_NO_GRANULE) granule = take_before(top, count, top, dirty_granules);
    }
    if (granule != HAK_NO_GRANULE) return granule;
    /* New chunks, past those in other hands and foreign ones; `refused` by the kernel ends it. A chunk has room for many threads:
     * one that somebody maps just now is waited for, some 20 ms at most; he may be gone. */
    unsigned turn = 0;
    size_t passed = hak_load_relaxed(&foreign_end);
    if (passed < top) passed = top;
    for (size_t number = passed; number < hak_region.chunk_count; number++) {
        enum hak_ready ready = chunks_reach(number, 1);
        while (ready == HAK_READY_ELSEWHERE && turn < TURNS_MAX && hak_region_in_hands(number)) {
            hak_os_yield(turn++);
            ready = chunks_reach(number, 1);
        }
        if (ready == HAK_READY_REFUSED) break;
        if (ready == HAK_READY_ELSEWHERE) {
            if (number == passed && hak_region_is_foreign(number)) foreign_pass(++passed);
            continue;
        }
        granule = take_in_chunk(rush, number, (unsigned)count, allowed, dirty_granules);
        if (granule != HAK_NO_GRANULE) return granule;
    }
    return HAK_NO_GRANULE;
}

bool hak_span_next_is_clean(size_t count) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    unsigned k = size_of(count);
    for (size_t number = room_next(0, k, top); number < top; number = room_next(number + 1, k, top)) {
        if (!is_ready(number)) continue;
        struct hak_chunk *chunk = hak_chunk_at(number);
        uint64_t starts = hak_word_runs(~hak_load_relaxed(&chunk->used), (unsigned)count);
        if (starts) return !(hak_load_relaxed(&chunk->dirty) >> hak_word_first(starts) & hak_word_mask(0, (unsigned)count));
    }
    return true;
}

/* --- runs of chunks --- */

static uint64_t run_mask(size_t count, size_t i) {
    size_t left = count - i * HAK_CHUNK_GRANULES;
    return hak_word_mask(0, left < HAK_CHUNK_GRANULES ? (unsigned)left : HAK_CHUNK_GRANULES);
}

static bool run_in_the_way(size_t number, uint64_t mask, size_t top) {
    return number < top && hak_unit_ready(number) && (hak_load_relaxed(&hak_chunk_at(number)->used) & mask) != 0;
}

static size_t take_run(size_t count, size_t align, size_t *dirty_granules) {
    size_t chunks = (count + HAK_CHUNK_GRANULES - 1) / HAK_CHUNK_GRANULES;
    size_t step = align > HAK_CHUNK_GRANULES ? align / HAK_CHUNK_GRANULES : 1;
    uintptr_t base_chunk = hak_window.base / HAK_CHUNK_BYTES;
    unsigned k = size_of(count < HAK_CHUNK_GRANULES ? count : HAK_CHUNK_GRANULES); /* the first chunk's part */
    size_t number = 0, granule = align == 1 ? take_across(count, dirty_granules) : HAK_NO_GRANULE;
    if (granule != HAK_NO_GRANULE) return granule;
    for (;;) {
        size_t top = hak_load_acquire(&hak_chunk_top), i = chunks;
        number = hak_round_up(base_chunk + room_next(number, k, top), step) - base_chunk;
        if (number + chunks > hak_region.chunk_count) /* at the window's end: with the tail of the last in use it may fit */
            return align == 1 ? take_before(number, count, top, dirty_granules) : HAK_NO_GRANULE;
        /* from the far end: the last chunk in the way is where the search goes on */
        while (i > 0 && !run_in_the_way(number + i - 1, run_mask(count, i - 1), top)) i--;
        if (i > 0 && k == SIZES - 1 && run_in_the_way(number, ~UINT64_C(0), top)) room_clear(number, k);
        if (i == 0) {
            granule = align == 1 ? take_before(number, count, top, dirty_granules) : HAK_NO_GRANULE;
            if (granule != HAK_NO_GRANULE) return granule;
            enum hak_ready ready = chunks_reach(number, chunks);
            if (ready == HAK_READY_REFUSED) return HAK_NO_GRANULE;
            if (ready == HAK_READY && take_at(number * HAK_CHUNK_GRANULES, count, dirty_granules)) return number * HAK_CHUNK_GRANULES;
            i = 1; /* something foreign, or somebody was faster */
        }
        number += i;
    }
}

/* What could not be mapped goes back, but for what is foreign: that stays used for ever. */
static HAK_COLD void give_unmapped(size_t granule, size_t count) {
    size_t from = granule;
    for (size_t i = 0; i < count; i++) {
        if (!hak_region_piece_is_foreign(granule + i)) continue;
        if (granule + i > from) hak_span_give(from, granule + i - from, HAK_SPAN_AS_IT_WAS);
        from = granule + i + 1;
    }
    if (granule + count > from) hak_span_give(from, granule + count - from, HAK_SPAN_AS_IT_WAS);
}

static size_t span_take(struct hak_rush *rush, size_t count, size_t align, size_t *dirty_granules) {
    HAK_ASSERT(count > 0 && (align & (align - 1)) == 0);
    for (;;) {
        size_t granule = count <= HAK_CHUNK_GRANULES && align <= HAK_CHUNK_GRANULES
                             ? take_small(rush, count, align, dirty_granules)
                             : take_run(count, align, dirty_granules);
        if (granule == HAK_NO_GRANULE) return granule;
        enum hak_ready ready = hak_region_map_pieces(granule, count);
        if (HAK_LIKELY(ready == HAK_READY)) return granule;
        give_unmapped(granule, count);
        if (ready == HAK_READY_REFUSED) return HAK_NO_GRANULE;
    }
}

size_t hak_span_take_in(struct hak_rush *rush, size_t count, size_t align, size_t *dirty_granules) {
    if (hak_limit_refuses(count)) return HAK_NO_GRANULE;
    uint32_t lost = hak_load_relaxed(&lost_count);
    size_t granule = span_take(rush, count, align, dirty_granules);
    if (granule != HAK_NO_GRANULE) {
        note_use(granule, count);
        hak_limit_grew();
    }
    if (rush) hak_rush_turn(rush, hak_load_relaxed(&lost_count) != lost);
    return granule;
}

size_t hak_span_take(size_t count, size_t align, size_t *dirty_granules) {
    size_t granule = span_take(NULL, count, align, dirty_granules);
    if (granule != HAK_NO_GRANULE) note_use(granule, count);
    return granule;
}

/* The lowest of those that are clean as a whole, if there is one in the first chunks with room. */
static size_t take_clean(size_t count, size_t *dirty_granules) {
    enum { TRIES = 16 };
    size_t top = hak_load_acquire(&hak_chunk_top);
    unsigned k = size_of(count), tries = 0;
    if (hak_region.is_limited) return HAK_NO_GRANULE; /* what is clean may be unmapped */
    for (size_t number = room_next(0, k, top); number < top && tries < TRIES; number = room_next(number + 1, k, top), tries++) {
        if (!is_ready(number)) continue;
        uint64_t dirty = hak_load_relaxed(&hak_chunk_at(number)->dirty);
        size_t granule = take_in_chunk_without(NULL, number, (unsigned)count, ~UINT64_C(0), dirty, dirty_granules);
        if (granule != HAK_NO_GRANULE) return granule;
    }
    return HAK_NO_GRANULE;
}

static size_t take_half_in(size_t number) {
    uint64_t starts = UINT64_C(1) | UINT64_C(1) << HAK_HALF_GRANULES;
    size_t dirty_granules = 0, granule;
    granule = take_in_chunk_without(NULL, number, HAK_HALF_GRANULES, starts, hak_load_relaxed(&hak_chunk_at(number)->dirty), &dirty_granules);
    if (granule == HAK_NO_GRANULE || dirty_granules == 0) return granule;
    hak_span_give(granule, HAK_HALF_GRANULES, HAK_SPAN_AS_IT_WAS); /* somebody had and gave back a part of it meanwhile */
    return HAK_NO_GRANULE;
}

HAK_COLD size_t hak_span_take_half(void) {
    enum { TRIES = 16 };
    size_t top = hak_load_acquire(&hak_chunk_top), granule = HAK_NO_GRANULE;
    unsigned k = size_of(HAK_HALF_GRANULES), tries = 0;
    if (hak_region.is_limited || hak_limit_refuses(HAK_HALF_GRANULES)) return HAK_NO_GRANULE;
    for (size_t number = room_next(0, k, top); granule == HAK_NO_GRANULE && number < top && tries < TRIES; number = room_next(number + 1, k, top), tries++)
        if (is_ready(number)) granule = take_half_in(number);
    if (granule == HAK_NO_GRANULE && top < hak_region.chunk_count && chunks_reach(top, 1) == HAK_READY) granule = take_half_in(top);
    if (granule != HAK_NO_GRANULE) hak_limit_grew();
    return granule;
}

size_t hak_span_take_dense(size_t count, enum hak_growth growth) {
    bool is_few = growth == HAK_GROWTH_LITTLE;
    if (hak_limit_refuses(count)) return HAK_NO_GRANULE;
    size_t dirty_granules, granule = is_few ? take_clean(count, &dirty_granules) : HAK_NO_GRANULE;
    HAK_ASSERT(count <= ACROSS_MORE_THAN);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_ahead_used)) && !is_few) {
        granule = hak_ahead_take_left(count);
        if (granule != HAK_NO_GRANULE) return granule;
    }
    if (granule == HAK_NO_GRANULE) granule = span_take(NULL, count, 1, &dirty_granules);
    if (granule == HAK_NO_GRANULE) return granule;
    hak_limit_grew();
    if (dirty_granules == count || is_few) return granule; /* few pages are no huge one */
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    uint64_t mask = hak_word_mask((unsigned)(granule % HAK_CHUNK_GRANULES), (unsigned)count);
    uint64_t huge = hak_huge_grow(granule / HAK_CHUNK_GRANULES, mask, growth == HAK_GROWTH_DENSE);
    if (HAK_LIKELY(!huge)) return granule;
    if (HAK_UNLIKELY(huge == HAK_HUGE_GONE)) return hak_span_take_dense(count, HAK_GROWTH_LITTLE);
    hak_or(&chunk->blank, huge); /* also for who gives them back as they were */
    hak_or(&chunk->dirty, huge);
    return granule;
}

bool hak_span_take_again(size_t granule, size_t count) {
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
    uint64_t mask = hak_word_mask(first, (unsigned)count), used = hak_load_relaxed(&chunk->used);
    if (hak_region.is_limited) return false; /* it may be unmapped */
    if (hak_limit_refuses(count)) return false;
    do {
        if (used & mask || !(hak_load_relaxed(&chunk->dirty) >> first & 1)) return false;
    } while (!hak_cas_weak(&chunk->used, &used, used | mask)); /* acquire: as in take_in_chunk() */
    note_take(chunk, mask);
    return true;
}

bool hak_span_is_blank(size_t granule, size_t count) {
    while (count > 0) {
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        unsigned part = count < HAK_CHUNK_GRANULES - first ? (unsigned)count : HAK_CHUNK_GRANULES - first;
        if (hak_chunk_stale(hak_chunk_at(granule / HAK_CHUNK_GRANULES)) & hak_word_mask(first, part)) return false;
        granule += part;
        count -= part;
    }
    return true;
}

void hak_span_give(size_t granule, size_t count, enum hak_span_state state) { hak_span_give_in(NULL, granule, count, state); }

void hak_span_give_in(struct hak_rush *rush, size_t granule, size_t count, enum hak_span_state state) {
    while (count > 0) {
        struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        unsigned part = count < HAK_CHUNK_GRANULES - first ? (unsigned)count : HAK_CHUNK_GRANULES - first;
        uint64_t mask = hak_word_mask(first, part);
        HAK_ASSERT((hak_load_relaxed(&chunk->used) & mask) == mask);
        if (state != HAK_SPAN_AS_IT_WAS) hak_chunk_forget_blank(chunk, mask);
        if (state == HAK_SPAN_DIRTY && (hak_load_relaxed(&chunk->dirty) & mask) != mask) hak_or(&chunk->dirty, mask);
        if (state == HAK_SPAN_CLEAN) hak_and(&chunk->dirty, ~mask);
        hak_rush_note_free(rush, hak_chunk_resident_bytes(chunk, mask), -(int64_t)part);
        if (state == HAK_SPAN_AS_IT_WAS) {
            give_untouched(granule / HAK_CHUNK_GRANULES, mask);
        } else {
            hak_chunk_release(chunk, mask);
            room_note(granule / HAK_CHUNK_GRANULES, mask);
        }
        granule += part;
        count -= part;
    }
}

/* Is none of it in use, as far as can be seen? */
static bool seems_free(size_t at, size_t end) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (; at < end; at = hak_round_down(at, HAK_CHUNK_GRANULES) + HAK_CHUNK_GRANULES)
        if (run_in_the_way(at / HAK_CHUNK_GRANULES, part_mask(at, end), top)) return false;
    return true;
}

HAK_COLD bool hak_span_extend(size_t granule, size_t count, size_t more) {
    size_t end = granule + count, last = end + more;
    size_t number = (end - 1) / HAK_CHUNK_GRANULES, chunks = (last - 1) / HAK_CHUNK_GRANULES + 1 - number;
    if (last > hak_region.chunk_count * HAK_CHUNK_GRANULES || hak_limit_refuses(more)) return false;
    if (!seems_free(end, last) || chunks_reach(number, chunks) != HAK_READY) return false; /* in this order: what is mapped then stays */
    size_t dirty_granules;
    if (!take_at(end, more, &dirty_granules)) return false;
    if (hak_region_map_pieces(end, more) != HAK_READY) {
        give_unmapped(end, more);
        return false;
    }
    note_use(end, more);
    hak_limit_grew();
    return true;
}
