/* timeline.c - the process's memory over time, a row every so often.
 *
 * The table holds the whole recording: when it is full, every second row goes and the time between rows doubles.
 *
 * Owns:      the table of times (own mapping).
 * Threads:   whoever visits when a row is due, and it alone: the caller's tick is claimed by a CAS on its time (heap/sweep.c).
 *            `timeline_sequence` is odd while rows move.
 */
#include "watch/sampler.h"

#include "memory/large.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"

enum { ROWS = 4096, SMALL = 8, FIRST_MS = 100 };

static struct hak_time_row *time_rows;
static uint64_t last_ms;

bool hak_timeline_start(bool small) {
    struct hak_published *published = &hakmem_published;
    size_t capacity = ROWS / (small ? SMALL : 1);
    if (!time_rows) time_rows = hak_os_map(hak_round_up(capacity * sizeof *time_rows, hak_os_page_bytes()));
    if (!time_rows) return false;
    published->timeline = (struct hak_table){ (uintptr_t)time_rows, sizeof *time_rows, capacity, 0 };
    published->timeline_ms = FIRST_MS;
    return true;
}

static void sequence_step(void) { __atomic_fetch_add(&hakmem_published.timeline_sequence, 1, __ATOMIC_SEQ_CST); }

void hak_timeline_clear(void) {
    sequence_step();
    __atomic_store_n(&hakmem_published.timeline.used, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&hakmem_published.timeline_ms, FIRST_MS, __ATOMIC_RELAXED);
    sequence_step();
}

static void thin(void) {
    struct hak_published *published = &hakmem_published;
    sequence_step();
    for (uint64_t i = 0; i < published->timeline.used / 2; i++) time_rows[i] = time_rows[2 * i];
    __atomic_store_n(&published->timeline.used, published->timeline.used / 2, __ATOMIC_RELAXED);
    published->timeline_ms *= 2;
    sequence_step();
}

static uint64_t positive(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

static void heap_count(struct hak_heap *heap, void *count) {
    if (hak_load_relaxed(&heap->state) != HAK_HEAP_DEAD) ++*(uint64_t *)count;
}

HAK_COLD void hak_timeline_tick(uint64_t now_ms) {
    struct hak_published *published = &hakmem_published;
    if (!time_rows || !hak_sample_rate() || now_ms - last_ms < published->timeline_ms) return;
    last_ms = now_ms;
    if (published->timeline.used == published->timeline.capacity) thin();
    struct hak_time_row row = {
        .time_ns = hak_os_clock_ns(),
        .resident_bytes = hak_os_resident_bytes(),
        .free_bytes = positive(hak_load_relaxed(&hak_purge.free_bytes)),
        .used_bytes = positive(hak_load_relaxed(&hak_purge.used_granules)) << HAK_GRANULE_SHIFT,
        .absent_bytes = positive(hak_load_relaxed(&hak_purge.absent_bytes)),
        .large_bytes = positive(hak_load_relaxed(&hak_large_live_bytes)),
        .large_count = positive(hak_load_relaxed(&hak_large_live_count)),
        .live_bytes = hak_record_live_bytes(),
        .alloc_bytes = __atomic_load_n(&published->alloc_bytes, __ATOMIC_RELAXED),
        .returned_bytes = hak_load_relaxed(&hak_purge.returned_bytes),
        .retouched_bytes = hak_load_relaxed(&hak_purge.retouched_bytes),
        .fault_count = hak_os_usage().fault_count,
    };
    hak_heap_each(heap_count, &row.heap_count);
    time_rows[published->timeline.used] = row;
    __atomic_store_n(&published->timeline.used, published->timeline.used + 1, __ATOMIC_RELEASE);
}
