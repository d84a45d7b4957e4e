/* sweep.c - time: free pages that stay unused go back to the kernel, on visits.
 *
 * A hand goes round the chunks, once per purge_delay_ms. What it finds free and resident, and found so the
 * last time round too, is returned: a page goes back between one and two delays after it was freed. After a pause
 * without visits the hand makes up for it in steps, so that no visit waits for a whole round, and passes by a chunk that it
 * came to less than half a delay ago: a page that was freed about then goes back after half a delay to two and a half.
 *
 * Threads:   whoever visits when the next step is due; the step is claimed by a CAS on its time. Slabs of
 *            other heaps are reached through the chunks and claimed; nothing of them is changed but pages.
 * Measured:  a step looks at 64 chunks per 100 ms at most: about 1% of one core in the largest heaps. The first visit after
 *            three seconds, 1 GB of small blocks, a quarter of them free: 2.6 to 10 ms with a round at once, 0.4 to 0.8 in steps.
 */
#include "heap/borrow.h"
#include "heap/kept.h"
#include "heap/letters.h"
#include "heap/secure.h"

#include "heap/hooks.h"
#include "memory/ahead.h"
#include "memory/limit.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"

enum { STEP_MS = 20, HAND_ONE = 1 << 16, CHUNKS_PER_100_MS = 64, STEP_CHUNKS = 32, STEP_CHUNKS_MAX = 64, PASSED_MAX = 512,
       CLOCK_STEP_MAX = 16 * HAK_VISIT_CLOCK };

static hak_atomic_u64 last_ms, told_ms;
static hak_atomic_u64 hand, owed; /* chunks times HAND_ONE: in a small heap a step goes less than one chunk's way */

void (*hak_sweep_on_tick)(uint64_t now_ms), (*hak_sweep_on_pools)(uint64_t now_ms);

static size_t sweep_chunk(size_t number, bool all, uint64_t *slabs) {
    size_t bytes = 0;
    for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
        size_t granule = number * HAK_CHUNK_GRANULES + hak_word_first(live);
        struct hak_slab *slab = hak_slab_at(granule);
        if (!hak_slab_claim(slab)) continue;
        if (hak_slab_live(granule)) { /* look again: it may have ended before the claim */
            hak_slab_look_claimed(slab);
            bytes += hak_slab_sweep_claimed(slab, all);
            ++*slabs;
        }
        hak_slab_unclaim(slab);
    }
    return bytes + hak_purge_chunk(number, all);
}

/* What a thread keeps that came by for two delays already goes back, and what others told it of; a dead heap's mail is read. */
static void steal_from_idle(struct hak_heap *heap, void *now_ms) {
    hak_mail_of_dead(heap);
    if (heap == hak_self || *(uint64_t *)now_ms - hak_load_relaxed(&heap->kept_ms) < 2 * hak_purge_delay_ms()) return;
    hak_kept_steal(heap);
    if (hak_load_relaxed(&heap->letters) != 0 && !hak_heap_is_none(hak_self)) hak_letters_forward(hak_self, heap);
}

/* Once a period, as long as a round takes where there is something in each chunk. By the hand itself it is not to be told: it passes chunks by, and
 * mail of dead heaps that is read at each step costs a fifth of larson's time. */
static bool is_time_for_idle(uint64_t now, uint64_t period) {
    static hak_atomic_u64 looked_ms;
    uint64_t last = hak_load_relaxed(&looked_ms);
    return (int64_t)(now - last) >= (int64_t)period && hak_cas(&looked_ms, &last, now) && last != 0; /* 0: the first step */
}

/* The hand came by less than half a round ago: what was freed since would look as if it had been free for long. */
static bool is_too_soon(size_t number, uint64_t now, uint64_t period) {
    if (!hak_unit_ready(number)) return true;
    struct hak_chunk *chunk = hak_chunk_at(number);
    if ((uint32_t)now - hak_load_relaxed(&chunk->looked_ms) < period / 2) return true;
    hak_store_relaxed(&chunk->looked_ms, (uint32_t)now);
    return false;
}

/* The caller has moved the step's time on from `last` to `now`. */
static HAK_COLD void sweep_step(struct hak_heap *heap, uint64_t now, uint64_t last) {
    static hak_atomic_u64 word_bytes = HAK_WORD_BYTES; /* what the windows were made for; the option may change at any time */
    if (hak_load_relaxed(&word_bytes) != HAK_OPT(word_bytes)) {
        hak_store_relaxed(&word_bytes, HAK_OPT(word_bytes));
        hak_window_set(HAK_OPT(word_bytes));
    }
    uint64_t elapsed = now - last, period = hak_purge_delay_ms(), top = hak_load_acquire(&hak_chunk_top);
    uint64_t way = elapsed < period ? top * HAND_ONE * elapsed / period : top * HAND_ONE;
    uint64_t most = HAND_ONE + CHUNKS_PER_100_MS * HAND_ONE * elapsed / 100;
    if (way > most) way = most;
    uint64_t step = (STEP_CHUNKS + elapsed / 25 < STEP_CHUNKS_MAX ? STEP_CHUNKS + elapsed / 25 : STEP_CHUNKS_MAX) * HAND_ONE;
    way += hak_load_relaxed(&owed);
    if (way > top * HAND_ONE) way = top * HAND_ONE;
    hak_store_relaxed(&owed, way > step ? way - step : 0); /* due at the next tick */
    if (way > step) way = step;
    uint64_t before = hak_add(&hand, way), at = before / HAND_ONE, count = (before + way) / HAND_ONE - at, slabs = 0;
    if (is_time_for_idle(now, period)) hak_heap_each(steal_from_idle, &now);
    uint64_t passed = 0; /* a large block that is gone may have left thousands of chunks */
    for (uint64_t i = 0; i < count; i++) {
        for (; passed < PASSED_MAX && hak_purge_chunk_is_idle((at + i + passed) % top); passed++) hak_purge_chunk((at + i + passed) % top, false);
        if (!is_too_soon((at + i + passed) % top, now, period)) sweep_chunk((at + i + passed) % top, false, &slabs);
    }
    if (passed) hak_add(&hand, passed * HAND_ONE);
    HAK_COUNT(&heap->counters, sweep_slab, slabs);
    uint64_t told = hak_load_relaxed(&told_ms);
    if (now - told < STEP_MS || !hak_cas(&told_ms, &told, now)) return; /* the hand makes up for lost time */
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_purge.used_granules) + hak_load_relaxed(&hak_limit_outside_granules) >= HAK_LIMIT_GROUP_GRANULES))
        hak_limit_group_look(now);
    if (HAK_UNLIKELY(hak_heap_crowd() != 0)) hak_heap_crowd_look(now);
    if (HAK_UNLIKELY(hak_purge_is_over())) hak_sweep_excess(); /* the grace is over, or under a soft limit what is used grew; and nobody freed */
    void (*on_tick)(uint64_t) = __atomic_load_n(&hak_sweep_on_tick, __ATOMIC_ACQUIRE);
    if (on_tick) on_tick(now);
    void (*on_pools)(uint64_t) = __atomic_load_n(&hak_sweep_on_pools, __ATOMIC_RELAXED);
    if (on_pools) on_pools(now);
    void (*on_watch_tick)(struct hak_heap *, uint64_t) = HAK_HOOK(tick);
    if (on_watch_tick) on_watch_tick(heap, now);
}

/* Apart: hak_sweep_clock() is on the way of one visit in sixteen, and needs no registers of its own. */
static HAK_NOINLINE void sweep_tick(struct hak_heap *heap, uint64_t ticks) {
    heap->tick = ticks + HAK_TICKS;
    hak_mail_left(heap);
    uint64_t now = hak_os_clock_ms(), last = hak_load_relaxed(&last_ms);
    if (HAK_UNLIKELY(heap->middle_ms == 0)) { /* a short thread does not touch what it keeps nothing in */
        heap->middle_ms = now;
        hak_store_relaxed(&heap->kept_ms, now);
    } else if (now - heap->middle_ms >= HAK_OPT(purge_delay_ms)) {
        heap->middle_ms = now;
        hak_store_relaxed(&heap->kept_ms, now);
        hak_kept_flush(heap);
        hak_kept_tick(heap, now);
        hak_middle_flush(heap);
        hak_rush_tick(&heap->rush);
        for (size_t i = 0; i < sizeof heap->made_room / sizeof *heap->made_room; i++)
            if (HAK_UNLIKELY(heap->made_room[i] != 0)) heap->made_room[i] = 0; /* a page that else nobody may have written */
        hak_borrow_forget(heap, false);
        /* who left by a longjmp between a letter and its bit hides that line from all who write there after him */
        if (heap->had_letters) hak_or(&heap->letters, UINT32_MAX);
    }
    int64_t least_ms = hak_load_relaxed(&owed) ? 1 : STEP_MS;
    if ((int64_t)(now - last) < least_ms || !hak_cas(&last_ms, &last, now)) return; /* another thread's `last` may be later */
    if (last != 0) sweep_step(heap, now, last); /* else it is the first look at the clock */
}

/* Reading the clock was two fifths of a visit's time. Visits that follow close upon one another look at every sixteenth;
 * the first of slow ones looks at once from then on, for there may be three a second. */
void hak_sweep_clock(struct hak_heap *heap) {
    uint64_t ticks = hak_os_ticks();
    if (ticks - heap->ticks_seen > HAK_TICKS) heap->clock_step = HAK_VISIT_CLOCK;
    else if (heap->clock_step < CLOCK_STEP_MAX) heap->clock_step *= 2;
    heap->clock_in = heap->clock_step;
    heap->ticks_seen = ticks;
    if (ticks - (heap->tick - HAK_TICKS) >= HAK_TICKS) sweep_tick(heap, ticks); /* a counter that was set back, too */
}

size_t hak_sweep_all(bool all) {
    size_t bytes = 0, top = hak_load_acquire(&hak_chunk_top);
    uint64_t slabs = 0, never = UINT64_MAX;
    if (all) hak_heap_each(steal_from_idle, &never);
    for (size_t number = 0; number < top; number++) bytes += sweep_chunk(number, all, &slabs);
    return bytes;
}

HAK_COLD void hak_sweep_excess(void) {
    enum { CHUNKS_AT_ONCE = 8 };
    static hak_atomic_u64 excess_hand;
    hak_purge_excess();
    size_t top = hak_load_acquire(&hak_chunk_top);
    uint64_t at = hak_add(&excess_hand, CHUNKS_AT_ONCE), goal = hak_purge_goal();
    for (unsigned i = 0; i < CHUNKS_AT_ONCE && i < top && hak_purge_over((int64_t)(hak_purge_bound() - goal)); i++) {
        size_t number = (at + i) % top;
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            size_t granule = number * HAK_CHUNK_GRANULES + hak_word_first(live);
            struct hak_slab *slab = hak_slab_at(granule);
            /* a look without the claim: who is wrong about it takes the claim for nothing, or passes by */
            if (!hak_load_relaxed(&slab->counted_pages) || !hak_slab_claim(slab)) continue;
            if (hak_slab_live(granule)) hak_slab_sweep_claimed(slab, true);
            hak_slab_unclaim(slab);
        }
    }
}

/* Blocks of it that strangers freed are free already, and its owner may wait: pages that are free go back. Gives whether it was one. */
static bool look_at_given(size_t granule, uint32_t epoch) {
    struct hak_slab *slab = hak_slab_at(granule);
    if (hak_load_relaxed(&slab->mailed) != epoch || !hak_slab_claim(slab)) return false;
    if (hak_slab_live(granule)) {
        const struct hak_class *class = hak_slab_class(slab);
        const hak_atomic_u64 *remote = hak_slab_remote(slab);
        uint32_t count = 0;
        for (unsigned i = 0; i < class->word_count; i++) count += hak_word_count(hak_load_relaxed(&remote[i]));
        hak_slab_sweep_claimed(slab, true);
        hak_slab_settle(slab, count);
        if (atomic_load(&slab->mailed) != epoch) hak_slab_settle(slab, 0); /* its owner took it in meanwhile, and may have seen nothing settled */
    }
    hak_slab_unclaim(slab);
    return true;
}

HAK_COLD void hak_sweep_given(void) {
    enum { LOOKS = 16, CHUNKS = 16 };
    static hak_atomic_u64 given_hand; /* a granule; who is late sets it back: no harm */
    size_t top = hak_load_acquire(&hak_chunk_top), at = hak_load_relaxed(&given_hand), number = at / HAK_CHUNK_GRANULES;
    unsigned bit = at % HAK_CHUNK_GRANULES, looks = 0;
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    hak_purge_judge();
    for (unsigned chunks = 0; chunks < CHUNKS && looks < LOOKS && hak_given_over(); chunks++, number++, bit = 0) {
        if (number >= top) number = 0;
        uint64_t live = hak_chunk_slabs(number) >> bit << bit;
        for (; live && looks < LOOKS; live &= live - 1) {
            bit = hak_word_first(live);
            looks += look_at_given(number * HAK_CHUNK_GRANULES + bit, epoch);
        }
        if (live) break;
    }
    hak_store_relaxed(&given_hand, number * HAK_CHUNK_GRANULES + bit + (looks == LOOKS));
}

void hak_heap_empty(struct hak_heap *heap) {
    hak_secure_empty(heap);
    hak_middle_flush(heap);
    hak_kept_flush(heap);
    for (unsigned c = 1; c < hak_shelf_end(heap); c++) hak_bin_put_back(heap, c);
    hak_mail_take(heap);
    hak_event_pending(heap);
}

/* It stays in the list: a birth that finds it BUSY waits a moment, one that finds none makes a heap, which stays for ever. */
static void collect_dead(struct hak_heap *heap, void *context) {
    (void)context;
    if (!hak_heap_dead_claim(heap)) return;
    hak_heap_empty(heap);
    hak_heap_dead_unclaim(heap);
}

/* Of instances of families that threads have, the calling one among them, pages only: another thread may be about to clear the family. */
HAK_COLD size_t hak_heap_collect(struct hak_heap *heap) {
    uint64_t before = hak_load_relaxed(&hak_purge.returned_bytes);
    if (!hak_heap_is_none(heap)) {
        hak_visit_chores(heap);
        hak_heap_empty(heap);
        hak_rush_flush(&heap->rush); /* what it gave back counts as used until then */
        if (heap->is_survivor) hak_fork_rebuild(heap);
    }
    hak_heap_each(collect_dead, NULL);
    hak_ahead_end_now();
    if (HAK_UNLIKELY(hak_secure_is_on())) hak_secure_large_empty();
    hak_sweep_all(true);
    return hak_load_relaxed(&hak_purge.returned_bytes) - before;
}
