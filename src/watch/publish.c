/* publish.c - what a reader from outside needs of the allocator itself: where slabs and their bits are, classes, counters,
 * what large blocks hold.
 *
 * Owns:      the rows of classes and counters.
 * Threads:   the start, whoever has the tick, who writes a dump; they write the same numbers.
 */
#include "watch/sampler.h"

#include "hakmem/hakmem.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/counters.h"

#include <string.h>

enum { COUNTERS_MS = 100 };

static struct hak_class_row classes[HAK_SHELF_COUNT]; /* and pools: rows of the same bytes as their class */
static struct hak_counters counters;

static void geometry_fill(struct hak_geometry *geometry) {
    *geometry = (struct hak_geometry){
        .window_base = hak_window.base, .meta = hak_region.meta, .chunk_top_address = (uintptr_t)&hak_chunk_top,
        .unit_meta_bytes = hak_region.unit_meta_bytes, .structs_bytes = hak_region.structs_bytes, .meta_bytes = HAK_META_BYTES,
        .page_shift = hak_region.page_shift, .unit_shift = hak_region.unit_shift, .granule_shift = HAK_GRANULE_SHIFT,
        .is_limited = hak_region.is_limited,
        .chunk_struct_bytes = sizeof(struct hak_chunk), .chunk_used_offset = offsetof(struct hak_chunk, used),
        .chunk_dirty_offset = offsetof(struct hak_chunk, dirty), .chunk_slabs_offset = offsetof(struct hak_chunk, slabs),
        .slab_struct_bytes = sizeof(struct hak_slab), .slab_owner_offset = offsetof(struct hak_slab, owner),
        .slab_returned_offset = offsetof(struct hak_slab, returned), .slab_place_offset = offsetof(struct hak_slab, class_index) - 2, /* its low two bits */
        .slab_class_offset = offsetof(struct hak_slab, class_index),
        .slab_owner_line_offset = offsetof(struct hak_slab, owner_line),
        .slab_remote_line_offset = offsetof(struct hak_slab, remote_line),
        .slab_page_shift_offset = offsetof(struct hak_slab, page_shift),
        .row_head_bytes = sizeof(struct hak_row), .class_count = HAK_SHELF_COUNT,
    };
}

HAK_COLD void hak_publish_start(void) {
    struct hak_published *published = &hakmem_published;
    for (unsigned c = 1; c < HAK_SHELF_COUNT; c++) {
        const struct hak_class *class = &hak_classes[c];
        classes[c] = (struct hak_class_row){ class->reciprocal, class->block_bytes, class->capacity, class->word_count,
                                             1u << class->slab_shift };
    }
    geometry_fill(&published->geometry);
    published->classes = (struct hak_table){ (uintptr_t)classes, sizeof *classes, HAK_SHELF_COUNT, HAK_SHELF_COUNT };
    published->counter_names = (struct hak_table){ (uintptr_t)hak_counter_rows, sizeof *hak_counter_rows, HAK_COUNTER_COUNT,
                                                   HAK_COUNTER_COUNT };
    published->counters = (struct hak_table){ (uintptr_t)counters.n, sizeof *counters.n, HAK_COUNTER_COUNT, HAK_COUNTER_COUNT };
    published->large_bytes_address = (uintptr_t)&hak_large_live_bytes;
    published->large_count_address = (uintptr_t)&hak_large_live_count;
    memcpy(published->library_version, HAKMEM_VERSION, sizeof HAKMEM_VERSION);
    published->version = HAK_PUBLISHED_VERSION;
    published->bytes = sizeof *published;
    __atomic_store_n(&published->magic, HAK_PUBLISHED_MAGIC, __ATOMIC_RELAXED);
    __atomic_store_n(&published->geometry_ready, 1, __ATOMIC_RELEASE);
}

static void heap_add(struct hak_heap *heap, void *sum) { hak_counters_add(sum, &heap->counters); }

void hak_publish_tick(uint64_t now_ms) {
    static hak_atomic_u64 last_ms;
    struct hak_published *published = &hakmem_published;
    if (now_ms - hak_load_relaxed(&last_ms) < COUNTERS_MS) return;
    hak_store_relaxed(&last_ms, now_ms);
    struct hak_counters sum = { { 0 } };
    hak_heap_each(heap_add, &sum);
    sum.n[HAK_C_return_call] = hak_load_relaxed(&hak_purge.return_calls);
    sum.n[HAK_C_return_pages] = hak_load_relaxed(&hak_purge.returned_bytes) >> hak_region.page_shift;
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++) __atomic_store_n(&counters.n[i], sum.n[i], __ATOMIC_RELAXED);
    __atomic_store_n(&published->pid, hak_os_pid(), __ATOMIC_RELAXED);
}

uint64_t hak_publish_held(uint64_t begin_ns) {
    struct hak_published *published = &hakmem_published;
    uint64_t ns = hak_os_clock_ns() - begin_ns, most = __atomic_load_n(&published->held_max_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&published->held_count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&published->held_ns, ns, __ATOMIC_RELAXED);
    while (ns > most && !__atomic_compare_exchange_n(&published->held_max_ns, &most, ns, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return ns;
}
