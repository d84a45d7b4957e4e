/* ahead.c - see ahead.h. */
#include "memory/ahead.h"

#include "base/word.h"
#include "memory/huge.h"
#include "memory/limit.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"

/* Slabs of 64 KiB, 256 KiB and 1 MiB take turns: what is too small for the one is left for the others. */
enum { HALVES = 4, STILL_MS = 1000, ROOM = 4 * HAK_HALF_BYTES };

hak_atomic_u32 hak_ahead_used;
static hak_atomic_u32 left; /* halves that may be made */
static hak_atomic_u64 made, made_ns;
static hak_atomic_u64 taken_ms;
static hak_atomic_u64 halves[HALVES]; /* the number of each, and in the low half of the word its granules that are left; 0: none */

HAK_COLD void hak_ahead_start(uint32_t count) { hak_store_relaxed(&left, count); }
bool hak_ahead_was_tried(void) { return hak_load_relaxed(&made) != 0; }
bool hak_ahead_was_dear(void) { return hak_load_relaxed(&made_ns) > hak_load_relaxed(&made) * HAK_HUGE_SLOW_NS; }

HAK_COLD void hak_ahead_forget(void) {
    hak_store_relaxed(&made, 0);
    hak_store_relaxed(&made_ns, 0);
}

static size_t first_granule(uint64_t half) { return (size_t)(half >> 32) * HAK_HALF_GRANULES; }
static uint32_t granules_left(uint64_t half) { return (uint32_t)half; }

static size_t take_from(hak_atomic_u64 *place, unsigned count) {
    uint64_t half = hak_load_relaxed(place);
    for (;;) {
        uint64_t starts = hak_word_runs(granules_left(half), count);
        if (!starts) return HAK_NO_GRANULE;
        unsigned first = hak_word_first(starts);
        uint64_t rest = half & ~hak_word_mask(first, count);
        if (granules_left(rest) == 0) rest = 0;
        if (hak_cas_weak(place, &half, rest)) return first_granule(half) + first;
    }
}

static size_t take(unsigned count) {
    size_t granule = HAK_NO_GRANULE;
    for (unsigned i = 0; i < HALVES && granule == HAK_NO_GRANULE; i++) granule = take_from(&halves[i], count);
    return granule;
}

static HAK_COLD void give_back(uint64_t half) {
    for (uint64_t rest = granules_left(half); rest;) {
        unsigned first = hak_word_first(rest), count = hak_word_first(~(rest >> first));
        hak_span_give(first_granule(half) + first, count, HAK_SPAN_AS_IT_WAS);
        rest &= ~hak_word_mask(first, count);
    }
}

/* Where the new one is to stand: the place of the one that has least left, which goes back. */
static HAK_COLD hak_atomic_u64 *place_make(void) {
    hak_atomic_u64 *place = &halves[0];
    for (unsigned i = 1; i < HALVES; i++)
        if (hak_word_count(granules_left(hak_load_relaxed(&halves[i]))) < hak_word_count(granules_left(hak_load_relaxed(place)))) place = &halves[i];
    give_back(hak_exchange(place, 0));
    return place;
}

HAK_COLD void hak_ahead_add(size_t number, uint32_t granules) {
    uint64_t none = 0, half = (uint64_t)number << 32 | granules;
    if (granules == 0) return;
    hak_store_relaxed(&hak_ahead_used, 1);
    hak_store_relaxed(&taken_ms, hak_os_clock_ms());
    if (!hak_cas(place_make(), &none, half)) give_back(half); /* another thread's turn */
}

static bool is_room(void) {
    int64_t used = hak_load_relaxed(&hak_purge.used_granules) * HAK_GRANULE_BYTES - hak_load_relaxed(&hak_purge.absent_bytes);
    return hak_limit_free(ROOM, used > 0 ? (uint64_t)used : 0) == ROOM;
}

static HAK_COLD bool half_make(void) {
    uint32_t before = hak_load_relaxed(&left);
    do {
        if (before == 0) return false;
    } while (!hak_cas_weak(&left, &before, before - 1));
    size_t granule = HAK_OPT(huge_from_mb) != 0 && is_room() ? hak_span_take_half() : HAK_NO_GRANULE;
    uint64_t took_ns = 0;
    if (granule == HAK_NO_GRANULE || !hak_huge_half(granule, &took_ns)) {
        hak_store_relaxed(&left, 0);
        return false;
    }
    if (took_ns > HAK_HUGE_SLOW_NS) hak_store_relaxed(&left, 0);
    hak_add(&made, 1);
    hak_add(&made_ns, took_ns);
    hak_ahead_add(granule / HAK_HALF_GRANULES, UINT32_MAX);
    return true;
}

HAK_COLD size_t hak_ahead_take_left(size_t count) {
    size_t granule = take((unsigned)count);
    if (granule != HAK_NO_GRANULE) hak_store_relaxed(&taken_ms, hak_os_clock_ms());
    return granule;
}

size_t hak_ahead_take(size_t count) {
    size_t granule = hak_ahead_take_left(count);
    return granule == HAK_NO_GRANULE && half_make() ? hak_ahead_take_left(count) : granule;
}

hak_atomic_i64 hak_ahead_large;

HAK_COLD size_t hak_ahead_take_large(size_t count) {
    size_t granule = hak_add(&hak_ahead_large, -(int64_t)count) > 0 ? hak_ahead_take(count) : HAK_NO_GRANULE;
    if (granule == HAK_NO_GRANULE) hak_store_relaxed(&hak_ahead_large, 0);
    return granule;
}

HAK_COLD void hak_ahead_end_now(void) {
    for (unsigned i = 0; i < HALVES; i++)
        if (hak_load_relaxed(&halves[i])) give_back(hak_exchange(&halves[i], 0));
}

HAK_COLD void hak_ahead_end(uint64_t now_ms) {
    if (now_ms - hak_load_relaxed(&taken_ms) >= STILL_MS) hak_ahead_end_now();
}
