/* rush.c - see rush.h. */
#include "memory/rush.h"

#include "memory/purge.h"

hak_atomic_i64 hak_large_live_count, hak_large_live_bytes;

enum { SUM_MAX = 1 << 20 };

HAK_COLD void hak_rush_flush(struct hak_rush *rush) {
    if (rush->free_bytes | rush->used_granules) hak_free_note(rush->free_bytes, rush->used_granules);
    if (rush->live_count) hak_add(&hak_large_live_count, rush->live_count);
    if (rush->live_bytes) hak_add(&hak_large_live_bytes, rush->live_bytes);
    rush->free_bytes = rush->used_granules = rush->live_count = rush->live_bytes = 0;
}

static bool is_much(int64_t bytes) { return bytes > SUM_MAX || bytes < -SUM_MAX; }

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
