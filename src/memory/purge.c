/* purge.c - see purge.h.
 *
 * Threads:   who returns granules takes their used bits first, so nobody can be handed one meanwhile.
 * Measured:  madvise costs 0.2 us a page in long runs, 1.4 us alone and 10 us alone while another core runs
 *            in this address space; hence ranges are collected and sent in one process_madvise.
 */
#include "memory/purge.h"

#include "base/word.h"
#include "memory/ahead.h"
#include "memory/huge.h"
#include "memory/limit.h"
#include "rules/options.h"

struct hak_purge hak_purge;

enum { RANGES = 64, SOON_MS = 1000, LATE_MS = 1900, KEEP_WINDOW_MS = 2000, JUDGED_BYTES_MIN = 1 << 20, KEEP_PAGES_BYTES = 32 << 20, CROWDED_DRAWS = 6 };
/* A page that is touched again costs about 1.7 us, its return and its fault (docs/learning.md has 1,900 ns; 0.7 where nothing is virtual):
 * at 24 KiB a millisecond a hundredth of a processor's time.
 * That is worth as much again as the program holds, or a small one may. */
enum { COST_BYTES_MS = 24 << 10, COST_START_MS = 20, HELD_LEAST = 8 << 20 };
enum { DELAY_MS_MAX = 4000, DELAY_HOLDS_MS = 30000 };

static uint64_t positive(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

static uint64_t used_bytes(void) {
    return positive(hak_load_relaxed(&hak_purge.used_granules) * HAK_GRANULE_BYTES - hak_load_relaxed(&hak_purge.absent_bytes));
}

uint64_t hak_purge_bound_halved(unsigned halvings) {
    uint64_t bound = HAK_OPT(free_max_mb) << 20;
    uint64_t used = used_bytes(), share = used / HAK_OPT(free_share);
    uint64_t keep = hak_load_relaxed(&hak_purge.keep_bytes);
    if (share > bound) bound = share;
    bound >>= halvings;
    return hak_limit_free(keep > bound ? keep : bound, used);
}

uint64_t hak_purge_bound(void) { return hak_purge_bound_halved(hak_load_relaxed(&hak_purge.halvings)); }

bool hak_purge_over(int64_t more_bytes) {
    int64_t free_bytes = hak_load_relaxed(&hak_purge.free_bytes) + more_bytes;
    return positive(free_bytes) > hak_purge_bound();
}

static HAK_COLD bool grace_is_over(uint64_t free_bytes, uint64_t bound) {
    enum { GROUP_SHARE = 16, GROWN_LEAST = 256 << 10, GROWN_SHARE = 4 };
    uint64_t grace = HAK_OPT(free_grace_ms), most = bound > HAK_GRACE_BYTES ? bound : HAK_GRACE_BYTES;
    uint64_t group = hak_load_relaxed(&hak_limit_group_bytes);
    if (HAK_UNLIKELY(group != 0) && group / GROUP_SHARE < most) most = group / GROUP_SHARE; /* other processes are in it */
    if (grace == 0 || hak_load_relaxed(&hak_purge.crowded)) return true;
    if (hak_load_relaxed(&hak_purge.halvings) != 0 && !hak_option_is_pinned(HAK_O_free_grace_ms)) return true; /* they were priced without one */
    if (hak_region.is_limited || hak_option_is_pinned(HAK_O_free_max_mb) || hak_limit_free(free_bytes, used_bytes()) < free_bytes) return true;
    uint64_t now = hak_os_clock_ms(), since = hak_load_relaxed(&hak_purge.over_since_ms);
    if ((int64_t)(now - hak_load_relaxed(&hak_purge.grace_from_ms)) < 0) return true;
    if (since == 0) {
        hak_store_relaxed(&hak_purge.grown_bytes, 0);
        hak_store_relaxed(&hak_purge.above_bytes, 0);
        hak_store_relaxed(&hak_purge.over_since_ms, since = now);
    }
    uint64_t above = free_bytes - bound, highest = hak_load_relaxed(&hak_purge.above_bytes);
    if (above > highest) hak_store_relaxed(&hak_purge.above_bytes, highest = above);
    bool is_much = above > most || positive(hak_load_relaxed(&hak_purge.grown_bytes)) > GROWN_LEAST + highest / GROWN_SHARE;
    if (!is_much && (int64_t)(now - since) < (int64_t)grace) return false; /* another thread's may be later */
    hak_store_relaxed(&hak_purge.grace_from_ms, now + HAK_GRACE_AGAIN_MS);
    hak_store_relaxed(&hak_purge.over_since_ms, 0);
    return true;
}

/* What strangers gave, and nobody looked at. */
static uint64_t given_rest(void) { return positive(hak_load_relaxed(&hak_purge.given_bytes) - hak_load_relaxed(&hak_purge.settled_bytes)); }

/* Free memory is not above the bound: and what strangers gave? */
static HAK_COLD void grace_end(uint64_t room) {
    if (given_rest() <= room) hak_store_relaxed(&hak_purge.over_since_ms, 0);
}

bool hak_purge_over_long(void) {
    uint64_t free_bytes = positive(hak_load_relaxed(&hak_purge.free_bytes)), bound = hak_purge_bound();
    if (HAK_UNLIKELY(free_bytes > bound)) return grace_is_over(free_bytes, bound);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_purge.over_since_ms) != 0)) grace_end(bound - free_bytes);
    return false;
}

HAK_NOINLINE void hak_free_flush(int64_t *sum) {
    int64_t bytes = *sum;
    *sum = 0; /* first: a thread that vanishes here loses it, and nobody adds it twice */
    atomic_signal_fence(memory_order_seq_cst);
    hak_free_note(bytes, 0);
}

HAK_COLD void hak_given_note(int64_t bytes) {
    int64_t before = hak_add(&hak_purge.given_bytes, bytes);
    if (before + bytes < 0) hak_add(&hak_purge.given_bytes, -(before + bytes)); /* given by who does not count (heap/mail.c) */
}

HAK_COLD void hak_given_flush(int64_t *sum) { /* as hak_free_flush */
    int64_t bytes = *sum;
    *sum = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (bytes) hak_given_note(bytes);
}

HAK_COLD bool hak_given_over(void) {
    uint64_t rest = given_rest(), bound = hak_purge_bound(), free_bytes = positive(hak_load_relaxed(&hak_purge.free_bytes)) + rest;
    return rest > 0 && free_bytes > bound && grace_is_over(free_bytes, bound);
}

HAK_COLD void hak_given_settle(int64_t bytes) { hak_add(&hak_purge.settled_bytes, bytes); }

uint64_t hak_purge_goal_of(uint64_t bound) {
    uint64_t keep = hak_load_relaxed(&hak_purge.keep_bytes);
    return bound > keep ? bound / 2 : bound - bound / 8;
}

uint64_t hak_purge_goal(void) { return hak_purge_goal_of(hak_purge_bound()); }

uint32_t hak_purge_stamp(bool by_sweep) { return ((uint32_t)hak_os_clock_ms() & ~1u) | by_sweep; }

static void keep_begin(uint64_t now) {
    hak_store_relaxed(&hak_purge.judged_since_ms, now);
    hak_store_relaxed(&hak_purge.judged_returned_bytes, 0);
    hak_store_relaxed(&hak_purge.judged_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.enforced_bytes, 0);
    hak_store_relaxed(&hak_purge.enforced_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.late_bytes, 0);
}

/* Something goes back every second, so that nothing begins anew: what is long ago counts less, or all that ever went back
 * would raise `keep` at the next peak. */
static void keep_age(uint64_t now) {
    hak_store_relaxed(&hak_purge.judged_since_ms, now - (now - hak_load_relaxed(&hak_purge.judged_since_ms)) / 2);
    hak_atomic_u64 *sums[] = { &hak_purge.judged_returned_bytes, &hak_purge.judged_retouched_bytes, &hak_purge.enforced_bytes,
                               &hak_purge.enforced_retouched_bytes, &hak_purge.late_bytes, &hak_purge.swept_bytes, &hak_purge.swept_retouched_bytes };
    for (unsigned i = 0; i < sizeof sums / sizeof *sums; i++) hak_store_relaxed(sums[i], hak_load_relaxed(sums[i]) / 2);
}

/* What the program took of its free memory, and a quarter, for sizes vary. Not what is free: where sizes drift, most of that is never
 * wanted again. */
static uint64_t keep_wanted(void) {
    uint64_t drawn = positive(hak_load_relaxed(&hak_purge.drawn_bytes));
    return drawn + drawn / 4;
}

/* A bound that the user set stands; and under a limit on address space what is kept would be mapped, which the program's own mmap and the
 * stacks of its threads then lack. */
static void keep_raise(uint64_t wanted) {
    if (wanted > hak_load_relaxed(&hak_purge.keep_bytes) && !hak_region.is_limited && !hak_option_is_pinned(HAK_O_free_max_mb))
        hak_store_relaxed(&hak_purge.keep_bytes, wanted);
}

/* By the program. What strangers gave nobody holds, whoever looked at it. */
static uint64_t held_bytes(void) {
    return positive((int64_t)used_bytes() - hak_load_relaxed(&hak_purge.free_bytes) - hak_load_relaxed(&hak_purge.given_bytes));
}

/* Of `returned` bytes so many were touched again: by the pages, not by how much is free, for that may stay as it is while what is freed
 * in one class goes back and is wanted there a moment later. To half of what is held at most, or to what a small program may keep. */
static HAK_COLD void keep_judge_pages(uint64_t returned, uint64_t again) {
    uint64_t bound = hak_purge_bound(), wanted = bound + bound / 2;
    if (returned < bound / 2 || again * 5 <= returned * 3) return;
    uint64_t most = held_bytes() / 2;
    if (most < KEEP_PAGES_BYTES) most = KEEP_PAGES_BYTES;
    hak_store_relaxed(&hak_purge.enforced_bytes, 0);
    hak_store_relaxed(&hak_purge.enforced_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.late_bytes, 0);
    keep_raise(wanted < most ? wanted : most);
}

static void delay_raise(uint64_t now_ms) {
    uint64_t twice = 2 * hak_purge_delay_ms();
    hak_store_relaxed(&hak_purge.swept_bytes, 0);
    hak_store_relaxed(&hak_purge.swept_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.delay_since_ms, now_ms);
    hak_store_relaxed(&hak_purge.delay_ms, twice < DELAY_MS_MAX ? twice : DELAY_MS_MAX);
}

/* Bytes a millisecond. The sums may be younger than what was away for a second or more: that cost no more than so much in its time. They
 * may have begun anew by another thread's later clock. */
static uint64_t cost_of(uint64_t soon, uint64_t late, int64_t since_ms) {
    uint64_t sums_ms = (since_ms > 0 ? (uint64_t)since_ms : 0) + COST_START_MS;
    return soon / sums_ms + late / (sums_ms > SOON_MS ? sums_ms : SOON_MS);
}

HAK_COLD void hak_purge_note_retouch(uint64_t bytes, uint32_t stamp) {
    uint64_t now = hak_os_clock_ms();
    hak_add(&hak_purge.retouched_bytes, bytes);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_spare_on))) hak_spare_note(-(int64_t)bytes);
    bool by_sweep = stamp & 1;
    uint32_t age = (uint32_t)now - (stamp & ~1u);
    if (age >= (by_sweep ? SOON_MS : LATE_MS)) return;
    hak_add(&hak_purge.judged_retouched_bytes, bytes);
    hak_free_watch(hak_load_relaxed(&hak_purge.free_bytes));
    uint64_t returned = hak_load_relaxed(by_sweep ? &hak_purge.swept_bytes : &hak_purge.enforced_bytes);
    uint64_t again = hak_add(by_sweep ? &hak_purge.swept_retouched_bytes : &hak_purge.enforced_retouched_bytes, bytes) + bytes;
    uint64_t late = hak_load_relaxed(&hak_purge.late_bytes);
    if (age >= SOON_MS) late = hak_add(&hak_purge.late_bytes, bytes) + bytes;
    if (returned < JUDGED_BYTES_MIN || again * 5 <= returned) return;
    if (by_sweep) {
        delay_raise(now);
        return;
    }
    uint64_t soon = again > late ? again - late : 0, cost = cost_of(soon, late, (int64_t)(now - hak_load_relaxed(&hak_purge.judged_since_ms)));
    if (cost < COST_BYTES_MS) return;
    uint64_t wanted = keep_wanted(), held = held_bytes(), worth = (held > HELD_LEAST ? held : HELD_LEAST) / COST_BYTES_MS * cost;
    keep_raise(wanted < worth ? wanted : worth);
    keep_judge_pages(returned, soon);
}

uint64_t hak_purge_delay_ms(void) {
    uint64_t option = HAK_OPT(purge_delay_ms), learnt = hak_load_relaxed(&hak_purge.delay_ms);
    return learnt > option && option > 0 ? learnt : option;
}

HAK_COLD void hak_purge_judge(void) {
    uint64_t now = hak_os_clock_ms();
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_ahead_used))) hak_ahead_end(now);
    if ((int64_t)(now - hak_load_relaxed(&hak_purge.keep_ms)) > KEEP_WINDOW_MS) { /* another thread's may be later */
        uint64_t keep = hak_load_relaxed(&hak_purge.keep_bytes), wanted = keep_wanted();
        if (wanted < keep / 2) wanted = keep < 1 << 20 ? 0 : keep / 2;
        if (wanted < keep) hak_store_relaxed(&hak_purge.keep_bytes, wanted);
        bool is_first = hak_load_relaxed(&hak_purge.keep_ms) == 0;
        if (is_first || now - hak_load_relaxed(&hak_purge.returned_ms) >= LATE_MS) keep_begin(now);
        else keep_age(now);
        int64_t free_bytes = hak_free_unpurged(hak_load_relaxed(&hak_purge.free_bytes));
        hak_store_relaxed(&hak_purge.free_peak_bytes, free_bytes);
        hak_store_relaxed(&hak_purge.drawn_bytes, 0);
        hak_store_relaxed(&hak_purge.keep_ms, now);
    }
    if (hak_load_relaxed(&hak_purge.delay_ms) && (int64_t)(now - hak_load_relaxed(&hak_purge.delay_since_ms)) > DELAY_HOLDS_MS) {
        hak_store_relaxed(&hak_purge.delay_ms, 0);
        hak_store_relaxed(&hak_purge.swept_bytes, 0);
        hak_store_relaxed(&hak_purge.swept_retouched_bytes, 0);
    }
}

static void returned_note(uint64_t bytes, bool by_sweep) {
    hak_store_relaxed(&hak_purge.returned_ms, hak_os_clock_ms());
    hak_add(&hak_purge.returned_bytes, bytes);
    hak_add(&hak_purge.judged_returned_bytes, bytes);
    hak_add(by_sweep ? &hak_purge.swept_bytes : &hak_purge.enforced_bytes, bytes);
}

bool hak_purge_return(const struct hak_range *ranges, size_t count, uint64_t absent_bytes, bool by_sweep) {
    uint64_t calls = 0, bytes = 0;
    size_t done = hak_os_return(ranges, count, &calls);
    for (size_t i = 0; i < done; i++) bytes += ranges[i].bytes;
    bytes = bytes > absent_bytes ? bytes - absent_bytes : 0;
    hak_add(&hak_purge.return_calls, calls);
    returned_note(bytes, by_sweep);
    return done == count;
}

/* Under RLIMIT_AS the address space counts too: pieces of four granules that are wholly ours are unmapped. */
static uint64_t unmap_pieces(size_t number, uint64_t mask) {
    uint64_t pieces = hak_word_runs(mask, 4) & hak_word_multiples(4);
    uint64_t done = 0;
    for (; pieces; pieces &= pieces - 1) {
        unsigned first = hak_word_first(pieces);
        uint64_t piece = hak_word_mask(first, 4);
        if (!(hak_load_relaxed(&hak_chunk_at(number)->mapped) & piece)) continue;
        if (hak_os_unmap(hak_granule_address(number * HAK_CHUNK_GRANULES + first), 4 * HAK_GRANULE_BYTES) != 0) continue;
        hak_and(&hak_chunk_at(number)->mapped, ~piece);
        hak_and(&hak_chunk_at(number)->pieces, (uint16_t)~(1u << first / 4)); /* after `mapped`: region.c */
        hak_add(&hak_region.mapped_bytes, -(uint64_t)(4 * HAK_GRANULE_BYTES));
        returned_note((uint64_t)hak_chunk_resident_bytes(hak_chunk_at(number), piece), false);
        done |= piece;
    }
    return done;
}

/* The whole pieces in which granules of `mask` lie. */
static uint64_t pieces_around(uint64_t mask) {
    mask |= mask >> 1;
    return ((mask | mask >> 2) & hak_word_multiples(4)) * 15;
}

/* Of a chunk's granules, those that lie side by side as one. */
static size_t ranges_of(struct hak_range ranges[RANGES], size_t number, uint64_t granules) {
    size_t count = 0;
    for (uint64_t left = granules; left; count++) {
        unsigned first = hak_word_first(left);
        uint64_t gap = ~(left >> first);
        unsigned length = gap ? hak_word_first(gap) : 64;
        ranges[count] = (struct hak_range){ hak_granule_address(number * HAK_CHUNK_GRANULES + first), (size_t)length << HAK_GRANULE_SHIFT };
        left &= ~hak_word_mask(first, length);
    }
    return count;
}

/* The caller has taken the granules of `mask`, of which `dirty` are to go back. Returns which of them did. */
static uint64_t return_granules(size_t number, uint64_t mask, uint64_t dirty, bool by_sweep) {
    uint64_t done = hak_region.is_limited ? unmap_pieces(number, mask) & dirty : 0;
    struct hak_range ranges[RANGES];
    uint64_t left = dirty & ~done;
    size_t count = ranges_of(ranges, number, left);
    for (size_t i = 0; i < count; i++) hak_huge_leave(ranges[i].start, ranges[i].bytes);
    uint64_t absent_bytes = (uint64_t)hak_chunk_absent_bytes(hak_chunk_at(number), left);
    if (count && hak_purge_return(ranges, count, absent_bytes, by_sweep)) done |= left;
    return done;
}

void (*hak_purge_on_empty_chunk)(size_t number);

/* A chunk without a used granule needs no metadata; slab/lines.c knows how to give it up. */
static void meta_return(size_t number) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t none = 0;
    if (!hak_load_relaxed(&chunk->rows_used) || hak_load_relaxed(&chunk->used) != 0) return;
    if (!hak_cas(&chunk->used, &none, ~UINT64_C(0))) return;
    hak_store_relaxed(&chunk->rows_used, 0);
    void (*on_empty)(size_t) = __atomic_load_n(&hak_purge_on_empty_chunk, __ATOMIC_RELAXED);
    if (on_empty) on_empty(number);
    hak_chunk_release(chunk, ~UINT64_C(0));
    hak_span_room(number);
}

static void note_gone(struct hak_chunk *chunk, uint64_t mask) {
    uint64_t partial = hak_load_relaxed(&chunk->partial);
    for (; mask; mask &= mask - 1) {
        unsigned at = hak_word_first(mask), absent = partial >> at & 1 ? hak_load_relaxed(&chunk->absent[at]) : 0;
        hak_chunk_note_gone(chunk, at, hak_granule_pages() & ~absent);
    }
}

static HAK_COLD size_t chunk_return(size_t number, uint64_t wanted, bool by_sweep) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t used = hak_load_relaxed(&chunk->used);
    uint64_t mask;
    if (hak_region.is_limited) wanted |= pieces_around(wanted) & hak_load_relaxed(&chunk->mapped);
    do {
        mask = wanted & ~used;
        if (!mask) return 0;
    } while (!hak_cas_weak(&chunk->used, &used, used | mask));
    hak_add(&hak_purge.free_bytes, -hak_chunk_look(number, mask));
    uint64_t dirty = mask & hak_load_relaxed(&chunk->dirty);
    uint64_t done = return_granules(number, mask, dirty, by_sweep);
    hak_store_relaxed(&chunk->returned_ms, hak_purge_stamp(by_sweep));
    size_t bytes = (size_t)hak_chunk_resident_bytes(chunk, done);
    note_gone(chunk, done);
    hak_chunk_forget_absent(chunk, done);
    if (!hak_region.is_limited && hak_load_relaxed(&chunk->blank) & done) hak_and(&chunk->blank, ~done);
    hak_and(&chunk->dirty, ~done); /* before used: pairs with the take, which reads dirty after its CAS */
    hak_chunk_release(chunk, mask);
    hak_span_room(number);
    hak_add(&hak_purge.free_bytes, -(int64_t)bytes);
    if (hak_load_relaxed(&chunk->dirty) == 0) meta_return(number);
    return bytes;
}

/* The highest that have so many bytes together, or all: the lowest are kept. */
static uint64_t highest_of(struct hak_chunk *chunk, uint64_t mask, int64_t bytes) {
    uint64_t highest = 0;
    for (; mask && bytes > 0; mask &= ~highest) {
        uint64_t granule = UINT64_C(1) << hak_word_last(mask);
        highest |= granule;
        bytes -= hak_chunk_resident_bytes(chunk, granule);
    }
    return highest;
}

HAK_COLD size_t hak_purge_spans(uint64_t goal_bytes) {
    size_t bytes = 0;
    for (size_t number = hak_load_acquire(&hak_chunk_top); number-- > 0;) {
        int64_t excess = hak_load_relaxed(&hak_purge.free_bytes) - (int64_t)goal_bytes;
        if (excess <= 0) break;
        if (!hak_unit_ready(number)) continue;
        struct hak_chunk *chunk = hak_chunk_at(number);
        uint64_t wanted = hak_load_relaxed(&chunk->dirty) & ~hak_load_relaxed(&chunk->used);
        if (!wanted) continue;
        bytes += chunk_return(number, highest_of(chunk, wanted, excess), false);
    }
    return bytes;
}

bool hak_purge_keep(void) {
    if (hak_region.is_limited || (hak_option_is_pinned(HAK_O_free_max_mb) && !hak_option_is_pinned(HAK_O_large_keep_mb))) return false; /* as above */
    uint64_t wanted = positive(hak_load_relaxed(&hak_purge.free_bytes));
    wanted += wanted / 4;
    if (wanted > HAK_OPT(large_keep_mb) << 20 || wanted > hak_limit_free(wanted, used_bytes())) return false;
    if (hak_load_relaxed(&hak_purge.crowded) && wanted > CROWDED_DRAWS * keep_wanted()) return false;
    if (wanted > hak_load_relaxed(&hak_purge.keep_bytes)) hak_store_relaxed(&hak_purge.keep_bytes, wanted);
    return true;
}

void hak_purge_span(size_t granule, size_t count) {
    while (count > 0) {
        size_t number = granule / HAK_CHUNK_GRANULES;
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        unsigned part = count < HAK_CHUNK_GRANULES - first ? (unsigned)count : HAK_CHUNK_GRANULES - first;
        chunk_return(number, hak_word_mask(first, part) & hak_load_relaxed(&hak_chunk_at(number)->dirty), false);
        granule += part;
        count -= part;
    }
}

/* mlockall(MCL_CURRENT) makes all resident that is mapped, and says nothing to us: what is believed to be absent goes back, too. Not counted:
 * as a rule it is. */
static HAK_COLD void return_clean(size_t number) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t used = hak_load_relaxed(&chunk->used), mask, calls = 0;
    do {
        mask = ~used & ~hak_load_relaxed(&chunk->dirty);
        if (!mask) return;
    } while (!hak_cas_weak(&chunk->used, &used, used | mask));
    struct hak_range ranges[RANGES];
    size_t count = ranges_of(ranges, number, mask & ~hak_load_relaxed(&chunk->dirty)); /* it may have been written meanwhile */
    if (count) hak_os_return(ranges, count, &calls);
    hak_chunk_release(chunk, mask);
    hak_span_room(number);
}

size_t hak_purge_chunk(size_t number, bool all) {
    if (!hak_unit_ready(number)) return 0;
    if (HAK_UNLIKELY(all) && !hak_region.is_limited) return_clean(number);
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t idle = hak_load_relaxed(&chunk->dirty);
    if (hak_region.is_limited && all) idle |= hak_load_relaxed(&chunk->mapped);
    idle &= ~hak_load_relaxed(&chunk->used);
    uint64_t wanted = all ? idle : idle & hak_load_relaxed(&chunk->cold);
    size_t bytes = wanted ? chunk_return(number, wanted, !all) : 0;
    if (hak_load_relaxed(&chunk->rows_used) && !hak_load_relaxed(&chunk->dirty)) meta_return(number);
    hak_store_relaxed(&chunk->cold, idle & ~wanted);
    if (number == 0) hak_purge_judge();
    return bytes;
}

HAK_COLD bool hak_purge_look(void) {
    enum { JUST_MS = 20 };
    uint64_t next = hak_load_relaxed(&hak_purge.grace_from_ms);
    bool had_one = (int64_t)(next + JUST_MS - KEEP_WINDOW_MS - hak_os_clock_ms()) >= 0; /* whose end led here */
    size_t top = hak_load_acquire(&hak_chunk_top);
    hak_store_relaxed(&hak_purge.unseen, 0);
    for (size_t number = 0; number < top; number++) {
        if (!hak_unit_ready(number)) continue;
        struct hak_chunk *chunk = hak_chunk_at(number);
        uint64_t used = hak_load_relaxed(&chunk->used), mask;
        do {
            mask = hak_load_relaxed(&chunk->unseen) & ~used;
        } while (mask && !hak_cas_weak(&chunk->used, &used, used | mask));
        if (!mask) continue;
        hak_add(&hak_purge.free_bytes, -hak_chunk_look(number, mask));
        hak_chunk_release(chunk, mask);
        hak_span_room(number);
    }
    if (hak_purge_over_long()) return true;
    if (had_one) hak_store_relaxed(&hak_purge.grace_from_ms, 0); /* what had its grace was not there */
    return false;
}

void hak_purge_excess(void) {
    hak_purge_judge();
    hak_purge_spans(hak_purge_goal());
}
