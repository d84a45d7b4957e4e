/* huge.c - see huge.h.
 *
 * Measured:  512 faults of 4 KiB take 0.75 ms, one of 2 MiB 0.18 ms; but 2.8 to 7 ms where the kernel has no huge page at
 *            hand. Splitting one takes 0.15 ms.
 * Rejected:  huge pages everywhere (mimalloc): a block of 256 MiB with a byte used in each MiB is resident as a whole.
 */
#include "memory/huge.h"

#include "base/word.h"
#include "memory/ahead.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"

#include <errno.h>

enum { WAIT_MIN = 16, WAIT_MAX = 4096, RUNS_MAX = 2048, DENSE_SHARE = 8, UNUSED_SHARE = 5, STEADY_MS = 1000 };

static hak_atomic_u32 state;    /* 0 not asked yet, 1 the system has huge pages, 2 it has none */
static hak_atomic_i64 skip;     /* halves still to pass by, after a slow one */
static hak_atomic_u32 wait = WAIT_MIN;
static hak_atomic_i64 half_count; /* huge halves, exactly */
static hak_atomic_i64 run_count;  /* about how many in a row of them: each is a mapping to the kernel. Neighbours that change at once are miscounted */

static bool allowed(size_t count) {
    uint32_t seen = hak_load_relaxed(&state);
    if (HAK_UNLIKELY(seen == 0)) {
        seen = hak_region.page_shift == 12 && !hak_region.is_limited && hak_os_huge_there() ? 1 : 2;
        hak_store_relaxed(&state, seen);
    }
    if (seen == 2) return false;
    if (hak_load_relaxed(&skip) > 0) {
        hak_add(&skip, -(int64_t)count);
        return false;
    }
    return true;
}

static bool is_huge(size_t half) {
    size_t number = half / 2;
    return number < hak_region.chunk_count && hak_unit_ready(number) && (hak_load_relaxed(&hak_chunk_at(number)->huge) >> half % 2 & 1);
}

static void *half_address(size_t half) { return hak_granule_address(half * HAK_HALF_GRANULES); }

enum flagged { REFUSED, FLAGGED, GONE };

/* Makes [half, half + count) huge; refused by the kernel, or where it has too many mappings of us already. Gone: what was there is not any more. */
static HAK_COLD enum flagged flag(size_t half, size_t count) {
    int neighbours = (half > 0 && is_huge(half - 1)) + is_huge(half + count);
    if (neighbours == 0 && hak_load_relaxed(&run_count) >= RUNS_MAX) return REFUSED;
    int result = hak_os_huge(half_address(half), count * HAK_HALF_BYTES);
    if (HAK_UNLIKELY(result == -EFAULT)) {
        hak_store_relaxed(&state, 2);
        return GONE;
    }
    if (result != 0) return REFUSED;
    hak_add(&run_count, 1 - neighbours);
    for (size_t i = half; i < half + count; i++)
        if (!(hak_or(&hak_chunk_at(i / 2)->huge, (uint8_t)(1 << i % 2)) >> i % 2 & 1)) hak_add(&half_count, 1);
    return FLAGGED;
}

static HAK_COLD void unflag(size_t half, bool tell) {
    uint8_t bit = (uint8_t)(1 << half % 2);
    if (!(hak_and(&hak_chunk_at(half / 2)->huge, (uint8_t)~bit) & bit)) return;
    hak_add(&run_count, (half > 0 && is_huge(half - 1)) + is_huge(half + 1) - 1);
    if (hak_add(&half_count, -1) == 1) hak_store_relaxed(&run_count, 0);
    if (tell) hak_os_not_huge(half_address(half), HAK_HALF_BYTES);
}

/* The whole half becomes resident. How long the kernel takes says whether it has huge pages at hand. */
static bool populate(size_t half, uint64_t *took_ns) {
    uint64_t begin_ns = hak_os_cpu_ns();
    int result = hak_os_populate(half_address(half), HAK_HALF_BYTES);
    if (result == -EINVAL) hak_store_relaxed(&state, 2); /* before Linux 5.14 */
    uint32_t now = hak_load_relaxed(&wait), next = WAIT_MIN;
    *took_ns = hak_os_cpu_ns() - begin_ns;
    if (*took_ns > HAK_HUGE_SLOW_NS) {
        hak_store_relaxed(&skip, now);
        next = now < WAIT_MAX / 4 ? now * 4 : WAIT_MAX;
    }
    if (next != now) hak_store_relaxed(&wait, next);
    return result == 0;
}

/* An eighth may be absent where slabs hold huge_from_mb, towards a quarter where they hold more: of new slabs no more than that stays unused.
 * Where one class is dense, its last half, which may stay unused, is to be a fifth at most of what is resident. */
static bool heap_is_dense(bool is_class_dense) {
    int64_t slab_bytes = hak_load_relaxed(&hak_purge.used_granules) * HAK_GRANULE_BYTES - hak_load_relaxed(&hak_large_live_bytes);
    int64_t from = (int64_t)(HAK_OPT(huge_from_mb) << 20), absent = hak_load_relaxed(&hak_purge.absent_bytes);
    if (is_class_dense) return slab_bytes - absent >= UNUSED_SHARE * (int64_t)HAK_HALF_BYTES;
    return slab_bytes >= from && absent < (slab_bytes + (slab_bytes - from)) / DENSE_SHARE;
}

static bool grows_densely(bool is_class_dense) {
    if (!HAK_OPT(huge_from_mb) || !heap_is_dense(is_class_dense)) return false;
    uint64_t returned_ms = hak_load_relaxed(&hak_purge.returned_ms); /* who has pages to return does not grow, he shifts */
    return returned_ms == 0 || hak_os_clock_ms() - returned_ms >= STEADY_MS;
}

/* Its granules are the caller's, and nothing of them is resident. Flagged: all of it is. */
static HAK_COLD enum flagged half_make(size_t half, uint64_t *took_ns) {
    enum flagged flagged = flag(half, 1);
    if (flagged != FLAGGED || populate(half, took_ns)) return flagged;
    struct hak_range range = { half_address(half), HAK_HALF_BYTES }; /* what the kernel had given when it gave up is not counted */
    uint64_t calls = 0;
    hak_os_return(&range, 1, &calls);
    unflag(half, true);
    return REFUSED;
}

HAK_COLD bool hak_huge_half(size_t granule, uint64_t *took_ns) {
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    uint64_t mask = hak_word_mask((unsigned)(granule % HAK_CHUNK_GRANULES), HAK_HALF_GRANULES);
    enum flagged flagged = allowed(1) ? half_make(granule / HAK_HALF_GRANULES, took_ns) : REFUSED;
    if (HAK_UNLIKELY(flagged == GONE)) hak_add(&hak_large_lost_granules, HAK_HALF_GRANULES);
    if (HAK_UNLIKELY(flagged == REFUSED)) hak_span_give(granule, HAK_HALF_GRANULES, HAK_SPAN_AS_IT_WAS);
    if (flagged != FLAGGED) return false;
    hak_or(&chunk->blank, mask);
    hak_or(&chunk->dirty, mask);
    return true;
}

/* Of free memory, if all of a half were that; whatever a policy halved. */
static bool is_too_much(void) {
    int64_t free_bytes = hak_load_relaxed(&hak_purge.free_bytes) + (int64_t)HAK_HALF_BYTES;
    return free_bytes > (int64_t)hak_purge_bound_halved(0);
}

/* `used` was read, and neither it nor `dirty` has any of `rest`, the part of the half that is not the caller's. Flagged: it is resident. */
static HAK_NOINLINE enum flagged half_grow(size_t half, uint64_t used, uint64_t rest) {
    struct hak_chunk *chunk = hak_chunk_at(half / 2);
    uint64_t took_ns;
    if (is_too_much() || !allowed(1)) return REFUSED;
    if (!hak_cas(&chunk->used, &used, used | rest)) return REFUSED; /* all of the half is ours */
    enum flagged flagged = hak_load_relaxed(&chunk->dirty) & rest ? REFUSED : half_make(half, &took_ns);
    if (HAK_UNLIKELY(flagged == GONE)) return GONE; /* and stays, for nobody is to have it */
    if (flagged == FLAGGED) {
        hak_or(&chunk->blank, rest);
        hak_or(&chunk->dirty, rest);
        if (HAK_UNLIKELY(hak_load_relaxed(&hak_purge.halvings) != 0)) {
            hak_add(&hak_purge.used_granules, hak_word_count(rest));
            hak_ahead_add(half, (uint32_t)(rest >> half % 2 * HAK_HALF_GRANULES));
            return FLAGGED;
        }
        hak_free_note_unplayed((int64_t)hak_word_count(rest) * HAK_GRANULE_BYTES);
    }
    hak_chunk_release(chunk, rest);
    hak_span_room(half / 2);
    return flagged;
}

uint64_t hak_huge_grow(size_t number, uint64_t mask, bool is_class_dense) {
    struct hak_chunk *chunk = hak_chunk_at(number);
    uint64_t resident = 0;
    for (unsigned h = 0; h < 2; h++) {
        uint64_t half = hak_word_mask(h * HAK_HALF_GRANULES, HAK_HALF_GRANULES), rest = half & ~mask;
        uint64_t used = hak_load_relaxed(&chunk->used);
        if (!(mask & half) || used & rest || hak_load_relaxed(&chunk->dirty) & half) continue;
        if (!grows_densely(is_class_dense)) return resident;
        enum flagged grown = half_grow(number * 2 + h, used, rest);
        if (HAK_UNLIKELY(grown == GONE)) { /* with the rest of the half, which is used from now on */
            hak_add(&hak_purge.used_granules, hak_word_count(rest));
            hak_add(&hak_large_lost_granules, hak_word_count(mask | half));
            return HAK_HUGE_GONE;
        }
        if (grown == FLAGGED) resident |= half & mask;
    }
    return resident;
}

static bool is_clean(size_t half) {
    uint64_t mask = hak_word_mask(half % 2 * HAK_HALF_GRANULES, HAK_HALF_GRANULES);
    return !(hak_load_relaxed(&hak_chunk_at(half / 2)->dirty) & mask) && !is_huge(half);
}

HAK_COLD bool hak_huge_block(size_t granule, size_t bytes, bool is_looked_at) {
    size_t end = granule + (bytes >> HAK_GRANULE_SHIFT); /* whole ones */
    size_t half = (granule + HAK_HALF_GRANULES - 1) / HAK_HALF_GRANULES, half_end = end / HAK_HALF_GRANULES;
    if (is_looked_at && half < half_end) half_end--;
    while (half < half_end) {
        size_t run = 0;
        while (half + run < half_end && is_clean(half + run)) run++;
        uint64_t took_ns = 0;
        if (run && (!HAK_OPT(huge_from_mb) || !allowed(run))) return true;
        enum flagged flagged = run ? flag(half, run) : REFUSED;
        if (HAK_UNLIKELY(flagged == GONE)) return false;
        if (run && (flagged == REFUSED || !populate(half, &took_ns))) return true;
        bool is_slow = took_ns > HAK_HUGE_SLOW_NS;
        for (; is_slow && run > 1; run--) unflag(half + run - 1, true);
        if (is_slow) return true;
        half += run + 1; /* the others come as they are touched */
    }
    size_t number = granule / HAK_CHUNK_GRANULES, first = granule % HAK_CHUNK_GRANULES, count = end - granule;
    if (is_looked_at || count == 0 || count >= HAK_HALF_GRANULES || first + count > HAK_CHUNK_GRANULES) return true;
    if (!(hak_load_relaxed(&hak_chunk_at(number)->dirty) & hak_word_mask((unsigned)first, (unsigned)count)))
        hak_os_populate(hak_granule_address(granule), bytes);
    return true;
}

void hak_huge_leave(const void *start, size_t bytes) {
    if (hak_load_relaxed(&half_count) == 0) return;
    uintptr_t from = (uintptr_t)start - hak_window.base, end = from + bytes;
    for (size_t half = from / HAK_HALF_BYTES; half * HAK_HALF_BYTES < end; half++) {
        if (!is_huge(half)) continue;
        uintptr_t low = half * (uintptr_t)HAK_HALF_BYTES, high = low + HAK_HALF_BYTES;
        unflag(half, true);
        if (from <= low && high <= end) continue;
        if (low < from) low = from;
        hak_os_split((void *)(hak_window.base + low));
    }
}

void hak_huge_forget(size_t granule, size_t count) {
    if (hak_load_relaxed(&half_count) == 0) return;
    size_t half = (granule + HAK_HALF_GRANULES - 1) / HAK_HALF_GRANULES, end = (granule + count) / HAK_HALF_GRANULES;
    for (; half < end; half++)
        if (is_huge(half)) unflag(half, false);
}
