/* rush.c - see rush.h. */
#include "memory/rush.h"

#include "memory/purge.h"

hak_atomic_i64 hak_large_live_count, hak_large_live_bytes;

enum { SUM_MAX = 1 << 20, SUM_MAX_CROWDED = 64 << 10 };

/* What a signal handler adds, or leaves by a longjmp, is lost at worst, and never counted twice. */
HAK_COLD void hak_rush_flush(struct hak_rush *rush) {
    int64_t free_bytes = rush->free_bytes, used_granules = rush->used_granules, live_count = rush->live_count, live_bytes = rush->live_bytes;
    rush->free_bytes = rush->used_granules = rush->live_count = rush->live_bytes = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (free_bytes | used_granules) hak_free_note(free_bytes, used_granules);
    if (live_count) hak_add(&hak_large_live_count, live_count);
    if (live_bytes) hak_add(&hak_large_live_bytes, live_bytes);
}

void hak_rush_tick(struct hak_rush *rush) {
    if (HAK_LIKELY(rush->heat == 0)) return;
    rush->heat /= 2;
    hak_rush_flush(rush);
}

static bool is_much(int64_t bytes) {
    int64_t most = hak_load_relaxed(&hak_purge.crowded) ? SUM_MAX_CROWDED : SUM_MAX;
    return bytes > most || bytes < -most;
}

static HAK_NOINLINE void note_free_apart(struct hak_rush *rush, int64_t free_bytes, int64_t used_granules) {
    rush->free_bytes += free_bytes;
    rush->used_granules += used_granules;
    if (HAK_UNLIKELY(is_much(rush->free_bytes))) hak_rush_flush(rush);
}

void hak_rush_note_free(struct hak_rush *rush, int64_t free_bytes, int64_t used_granules) {
    if (hak_rush_is_on(rush)) note_free_apart(rush, free_bytes, used_granules);
    else hak_free_note(free_bytes, used_granules);
}

static HAK_NOINLINE void note_live_apart(struct hak_rush *rush, int64_t count, int64_t bytes) {
    rush->live_count += count;
    rush->live_bytes += bytes;
    if (HAK_UNLIKELY(is_much(rush->live_bytes))) hak_rush_flush(rush);
}

void hak_rush_note_live(struct hak_rush *rush, int64_t count, int64_t bytes) {
    if (hak_rush_is_on(rush)) {
        note_live_apart(rush, count, bytes);
    } else {
        hak_add(&hak_large_live_count, count);
        hak_add(&hak_large_live_bytes, bytes);
    }
}
