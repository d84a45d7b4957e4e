/* kept.c - see kept.h: the first time that a span is kept, and how what is kept goes back. */
#include "heap/kept.h"

#include "memory/purge.h"
#include "rules/options.h"

HAK_COLD void *hak_kept_lost(struct hak_granule *record) { hak_slab_misuse("malloc", record->start); }

static void span_flush(struct hak_heap *heap, struct hak_granule *record, size_t count, bool is_in_doubt) {
    int64_t bytes = (int64_t)count << HAK_GRANULE_SHIFT;
    hak_store_relaxed(&heap->kept.reserved, hak_load_relaxed(&heap->kept.reserved) - (uint64_t)bytes);
    if (hak_large_kept_by(record, hak_kept_name(heap))) {
        hak_large_drop(record);
        hak_add(&hak_purge.free_bytes, -bytes); /* it was counted already, as reserved */
    } else if (!is_in_doubt) {
        hak_slab_misuse("free", record->start);
    }
}

/* All goes back. In doubt: a thread vanished in the middle of it, and a span may not be kept any more. */
static void list_flush(struct hak_heap *heap, bool is_in_doubt) {
    struct hak_kept *kept = &heap->kept;
    size_t last_count = kept->last_count;
    if (last_count) span_flush(heap, hak_kept_pop_last(kept), last_count, is_in_doubt);
    for (size_t count = 1; count <= HAK_KEPT_SIZES; count++)
        while (kept->count[count - 1] > 0) span_flush(heap, hak_kept_pop(kept, count), count, is_in_doubt);
    hak_store_relaxed(&kept->bytes, 0);
    int64_t rest = (int64_t)hak_load_relaxed(&kept->reserved);
    hak_store_relaxed(&kept->reserved, 0); /* first: a thread that vanishes here leaves it counted, not taken off twice */
    atomic_signal_fence(memory_order_seq_cst);
    if (rest) hak_add(&hak_purge.free_bytes, -rest);
}

/* There is a thief; one that was left behind in the parent, in the middle of it, is none. */
HAK_NOINLINE bool hak_kept_stolen_from(struct hak_heap *heap) {
    hak_kept_leave(heap);
    hak_fork_check(heap);
    uint32_t seen = hak_load_relaxed(&heap->kept.thief);
    if (seen && seen != hak_load_relaxed(&hak_epoch) && hak_cas(&heap->kept.thief, &seen, 0)) {
        if (hak_kept_enter(heap)) list_flush(heap, true);
        hak_kept_leave(heap);
    }
    return false;
}

/* Where threads are many what each keeps is much, and what the others take is of memory that would have served. Most may have ended. */
static uint64_t most_bytes(const struct hak_heap *heap) {
    if (hak_load_relaxed(&hak_purge.crowded)) {
        uint64_t part = HAK_KEPT_BYTES_MAX / hak_heap_living();
        return part > HAK_KEPT_BYTES_CROWDED ? part : HAK_KEPT_BYTES_CROWDED;
    }
    return hak_rush_is_on(&heap->rush) ? HAK_KEPT_BYTES_RUSH : HAK_KEPT_BYTES_MAX + (uint64_t)heap->kept.steps * HAK_KEPT_STEP_BYTES;
}

static unsigned most_of_a_size(const struct hak_heap *heap) {
    unsigned steps = heap->kept.steps, most = HAK_KEPT_EACH + steps;
    return hak_rush_is_on(&heap->rush) || most > HAK_KEPT_EACH_MOST ? HAK_KEPT_EACH_MOST : most;
}

HAK_COLD void hak_kept_missed_much(struct hak_heap *heap) {
    enum { SOON_MS = 64 };
    struct hak_kept *kept = &heap->kept;
    uint32_t now = (uint32_t)hak_os_clock_ms();
    kept->missed = 0;
    if (now - kept->looked_ms <= SOON_MS) {
        kept->steps += kept->steps < HAK_KEPT_STEPS_MAX;
        kept->rose_ms = now;
    }
    kept->looked_ms = now;
}

void hak_kept_tick(struct hak_heap *heap, uint64_t now_ms) {
    enum { LONG_MS = 1000 };
    if (HAK_UNLIKELY(heap->kept.steps) && (uint32_t)now_ms - heap->kept.rose_ms >= LONG_MS) heap->kept.steps /= 2;
}

static bool give_listed(struct hak_heap *heap, struct hak_granule *record, size_t count) {
    struct hak_kept *kept = &heap->kept;
    uint64_t bytes = hak_load_relaxed(&kept->bytes) + ((uint64_t)count << HAK_GRANULE_SHIFT);
    if (hak_rush_is_on(&heap->rush)) kept->steps = HAK_KEPT_STEPS_MAX; /* what was given back again would bring it on again */
    kept->each = (uint8_t)most_of_a_size(heap);
    if (kept->count[count - 1] + (kept->last_count == count) >= kept->each || bytes > most_bytes(heap)) {
        kept->refused += kept->refused < HAK_KEPT_REFUSED_MAX;
        return false;
    }
    int64_t more = (int64_t)(bytes - hak_load_relaxed(&kept->reserved));
    if (more > 0 && HAK_UNLIKELY(hak_purge_over(more)) && (hak_purge_over_long() || bytes > hak_heap_keep_most())) return false;
    if (!hak_large_keepable(record)) return false;
    if (more > 0) {
        hak_free_note(more, 0);
        hak_store_relaxed(&kept->reserved, bytes);
    }
    return hak_kept_push(heap, record, (uint32_t)count, hak_large_usable(record) | (uint64_t)hak_kept_name(heap) << HAK_LARGE_NAME_SHIFT);
}

bool hak_kept_give(struct hak_heap *heap, struct hak_granule *record) {
    size_t count = hak_large_granules(record);
    if (HAK_UNLIKELY(hak_large_is_kept(record))) hak_slab_misuse("free", record->start); /* by another thread, just now */
    if (count > HAK_KEPT_SIZES || HAK_OPT(disable_bigcache) | HAK_OPT(minimal) || !hak_kept_enter(heap)) return false;
    bool is_kept = give_listed(heap, record, count);
    hak_kept_leave(heap);
    return is_kept;
}

void hak_kept_flush(struct hak_heap *heap) {
    if (!hak_load_relaxed(&heap->kept.reserved)) return; /* nor is a page written that nobody wrote */
    if (!hak_kept_enter(heap)) return; /* the thief does it */
    if (hak_load_relaxed(&heap->kept.reserved)) list_flush(heap, false);
    hak_kept_leave(heap);
}

void hak_kept_make_room(struct hak_heap *heap, size_t count) {
    uint64_t kept = hak_load_relaxed(&heap->kept.bytes);
    if (HAK_LIKELY(kept == 0) || kept < count * (HAK_GRANULE_BYTES / 2) || count > HAK_CHUNK_GRANULES) return;
    if (hak_span_next_is_clean(count)) hak_kept_flush(heap);
}

HAK_COLD void hak_kept_flush_vanished(struct hak_heap *heap) {
    struct hak_kept *kept = &heap->kept;
    if (hak_load_relaxed(&kept->thief)) hak_store_relaxed(&kept->thief, 0);
    hak_kept_forget(heap);
    if (hak_load_relaxed(&kept->reserved)) list_flush(heap, true);
    if (hak_load_relaxed(&kept->busy)) hak_kept_leave(heap);
}

void hak_kept_steal(struct hak_heap *heap) {
    struct hak_kept *kept = &heap->kept;
    uint32_t epoch = hak_load_relaxed(&hak_epoch), nobody = 0;
    if (hak_load_acquire(&heap->epoch) != epoch || !hak_load_relaxed(&kept->reserved)) return; /* fork.c has those of the parent */
    if (!hak_cas(&kept->thief, &nobody, epoch)) return;
    if (hak_os_barrier() && !hak_load_acquire(&kept->busy)) list_flush(heap, false);
    hak_store_release(&kept->thief, 0);
}
