/* api.c - hakmem.h: allocation that knows more, and statistics. */
#include "hakmem/hakmem.h"

#include "front/front.h"
#include "heap/walk.h"
#include "memory/limit.h"
#include "memory/outside.h"
#include "memory/purge.h"
#include "slab/secure.h"
#include "os/os.h"
#include "rules/options.h"

#include <string.h>

void (*hak_front_on_site_alloc)(uintptr_t site, size_t bytes);
void (*hak_front_on_site_free)(uintptr_t site, size_t bytes);

HAK_EXPORT const char *hak_version(void) { return HAKMEM_VERSION; }

HAK_EXPORT void *hak_alloc_at(size_t bytes, hak_site_t site) {
    /* a site that is named needs no stack */
    void *block = site ? hak_malloc_from(bytes, (const void *)(uintptr_t)site, hak_self->stack_top)
                       : hak_malloc_from(bytes, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    if (!block || !site) return block;
    struct hak_found found = hak_find("hak_alloc_at", block);
    if (hak_front_on_site_alloc) hak_front_on_site_alloc(site, found.bytes);
    void (*on_site)(void *, uintptr_t) = HAK_HOOK(watched_site);
    if (HAK_UNLIKELY(on_site != NULL)) on_site(block, site);
    return block;
}

HAK_EXPORT void hak_free_at(void *block, hak_site_t site) {
    if (!block) return;
    if (site && hak_front_on_site_free) hak_front_on_site_free(site, hak_find("hak_free_at", block).bytes);
    hak_free_inline(block);
}

HAK_EXPORT struct hak_block hak_alloc_at_least(size_t bytes) {
    struct hak_block result = { hak_malloc_from(bytes, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa()), 0 };
    if (result.ptr) result.bytes = hak_find("hak_alloc_at_least", result.ptr).bytes;
    return result;
}

HAK_EXPORT size_t hak_expand(void *block, size_t bytes) {
    if (!block) return 0;
    struct hak_found found = hak_find("hak_expand", block);
    if (bytes <= found.bytes) return found.bytes;
    if (!found.large || bytes > PTRDIFF_MAX) return 0;
    uint32_t (*lift)(void *) = HAK_HOOK(large_lift);
    uint32_t lifted = HAK_UNLIKELY(lift != NULL) ? lift(block) : 0;
    struct hak_family_resize change = { NULL, 0, 0, 0 };
    bool may = hak_family_resize_begin(&change, found.record, hak_large_granules_as(found.record, bytes));
    bool grown = may && (hak_secure_is_on() ? hak_front_secure_large_resize : hak_large_resize)(found.record, bytes);
    if (change.family) hak_family_resize_end(&change, grown ? found.record : NULL);
    if (HAK_UNLIKELY(lift != NULL)) HAK_HOOK(large_lay)(hak_self, lifted, block, found.bytes, grown ? bytes : found.bytes);
    return grown ? hak_large_usable(found.record) : 0;
}

HAK_EXPORT size_t hak_usable_size(const void *block) { return hak_front_usable("hak_usable_size", block); }

size_t hak_front_good(size_t bytes) {
    if (bytes <= HAK_SLAB_BLOCK_BYTES_MAX) return hak_classes[bytes ? hak_class_of(bytes) : 1].block_bytes;
    size_t page = hak_os_page_bytes();
    return bytes > PTRDIFF_MAX - page ? bytes : hak_round_up(bytes, page);
}

/* A guarded block has no byte more than was asked for, and none has under the secure level. */
HAK_EXPORT size_t hak_good_size(size_t bytes) {
    bool is_exact = HAK_OPT(guard) || (HAK_OPT(secure) && bytes <= HAK_SLAB_BLOCK_BYTES_MAX - HAK_SECURE_WORD_BYTES);
    return HAK_UNLIKELY(is_exact) ? bytes : hak_front_good(bytes);
}

HAK_EXPORT size_t hak_collect(void) {
    if (!hak_start()) return 0;
    hak_fork_child(hak_self); /* it looks at other heaps first */
    return hak_heap_collect(hak_self);
}

HAK_EXPORT int hak_walk(int (*each)(const struct hak_held *held, void *context), void *context) {
    if (!hak_start()) return 0;
    hak_fork_child(hak_self);
    return hak_walk_all(&(struct hak_walk){ each, context, NULL });
}

/* --- statistics --- */

static uint64_t positive(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

/* By the chunks: the library's own sums are of whole granules, and count what threads keep for their next blocks. */
static void fill_large(struct hak_stats *stats) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (!hak_unit_ready(number)) continue;
        for (uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used); used; used &= used - 1) {
            const struct hak_granule *record = hak_granule_at(number * HAK_CHUNK_GRANULES + hak_word_first(used));
            size_t bytes = hak_large_held(record);
            stats->large_count += bytes > 0;
            stats->large_bytes += bytes;
        }
    }
}

static void fill_memory(struct hak_stats *stats) {
    stats->resident_bytes = hak_os_resident_bytes();
    stats->reserved_bytes = hak_window.bytes;
    stats->committed_bytes = hak_load_relaxed(&hak_region.mapped_bytes);
    stats->free_bytes = positive(hak_load_relaxed(&hak_purge.free_bytes));
    stats->returned_bytes = hak_load_relaxed(&hak_purge.returned_bytes);
    stats->retouched_bytes = hak_load_relaxed(&hak_purge.retouched_bytes);
    stats->taken_bytes = positive(hak_limit_taken()) << HAK_GRANULE_SHIFT;
    fill_large(stats);
}

static void fill_classes(struct hak_stats *stats, const struct hak_census *census) {
    stats->live_bytes = stats->large_bytes;
    for (unsigned i = 1; i < HAK_CLASS_COUNT; i++) {
        unsigned c = hak_class_by_size(i);
        struct hak_class_stats *row = &stats->class_stats[i - 1];
        uint64_t live = positive((int64_t)census->live[c]);
        row->block_bytes = hak_classes[c].block_bytes;
        row->slab_count = (uint32_t)census->slabs[c];
        row->alloc_count = census->handed[c];
        row->live_count = live;
        row->free_count = live < census->handed[c] ? census->handed[c] - live : 0; /* heaps are read before slabs */
        stats->live_bytes += live * row->block_bytes;
    }
    stats->class_count = HAK_CLASS_COUNT - 1;
}

static HAK_NOINLINE void stats_fill(struct hak_stats *all) {
    memset(all, 0, sizeof *all);
    if (!hak_start()) return;
    hak_fork_child(hak_self);
    struct hak_census census;
    hak_census_take(&census);
    census.counters.n[HAK_C_return_call] = hak_load_relaxed(&hak_purge.return_calls);
    census.counters.n[HAK_C_return_pages] = hak_load_relaxed(&hak_purge.returned_bytes) >> hak_region.page_shift;
    fill_memory(all);
    fill_classes(all, &census);
    all->heap_count = census.heap_count;
    all->dead_heap_count = census.dead_heap_count;
    all->counter_count = HAK_COUNTER_COUNT;
    memcpy(all->counter, census.counters.n, sizeof census.counters.n);
}

/* For a caller that knows fewer counters. Apart: mallinfo2 must do with the smallest stack that a thread may have. */
static HAK_NOINLINE void stats_fill_part(struct hak_stats *stats, size_t bytes) {
    struct hak_stats all;
    stats_fill(&all);
    memcpy(stats, &all, bytes);
}

HAK_EXPORT void hak_stats_get(struct hak_stats *stats, size_t bytes) {
    if (bytes < sizeof *stats) {
        stats_fill_part(stats, bytes);
        return;
    }
    stats_fill(stats);
    memset(stats + 1, 0, bytes - sizeof *stats); /* for a caller that knows more: 0 */
}
