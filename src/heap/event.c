/* event.c - a slab's countdown has ended: the free that ended it, or the owner's collection, comes here.
 *
 *   CURRENT  arm again for what the program holds; if that is nothing, count the pages, and if free memory
 *            breaks its bound, end the slab
 *   FULL     an eighth is free: back to the list
 *   PARTIAL  half free, an eighth left: count pages, return them if the bound is broken; nothing left: end it
 *
 * Threads:   the owner (of a dead heap: who made it BUSY).
 * Rejected:  relisting at the first free: 39 ns instead of 18 in random mixed with 65,536 slots.
 */
#include "heap/heap.h"

#include "memory/purge.h"

/* --- lists --- */

void hak_list_push(struct hak_heap *heap, struct hak_slab *slab) {
    hak_slab_name *head = &heap->shelf[slab->class_index].partial;
    hak_slab_name name = hak_slab_name_of(slab);
    HAK_ASSERT(!slab->next && !slab->prev && !slab->pending);
    slab->place = HAK_SLAB_PARTIAL;
    slab->next = *head;
    slab->prev = 0;
    if (*head) hak_slab_named(*head)->prev = name;
    *head = name;
}

void hak_list_remove(struct hak_heap *heap, struct hak_slab *slab) {
    if (slab->prev) hak_slab_named(slab->prev)->next = slab->next;
    else heap->shelf[slab->class_index].partial = slab->next;
    if (slab->next) hak_slab_named(slab->next)->prev = slab->prev;
    slab->next = slab->prev = 0;
}

/* --- the end of a slab --- */

/* `slab` is in no list and all its blocks are free. Mail for it may be under way: it will find no slab, and
 * nobody cuts a new one here before it arrived (slab_make; test/model proves it). */
static void finish(struct hak_heap *heap, struct hak_slab *slab) {
    if (HAK_UNLIKELY(!hak_slab_claim(slab))) {
        slab->place = HAK_SLAB_FULL;
        slab->pending = 1;
        slab->next = heap->pending;
        heap->pending = hak_slab_name_of(slab);
        HAK_COUNT(&heap->counters, event_pending, 1);
        return;
    }
    HAK_COUNT(&heap->counters, slab_released, 1);
    hak_slab_release_claimed(slab);
    if (HAK_UNLIKELY(hak_purge_over(0))) hak_sweep_excess();
}

void hak_event_pending(struct hak_heap *heap) {
    hak_slab_name name = heap->pending;
    heap->pending = 0;
    while (name) {
        struct hak_slab *slab = hak_slab_named(name);
        name = slab->next;
        slab->next = 0;
        slab->pending = 0;
        finish(heap, slab);
    }
}

/* --- the word in use --- */

void hak_bin_put_back(struct hak_heap *heap, unsigned class_index) {
    struct hak_shelf *shelf = &heap->shelf[class_index];
    struct hak_bin *bin = &heap->bin[class_index];
    struct hak_row *row = shelf->current;
    if (!row) return;
    struct hak_slab *slab = row->slab;
    uint32_t count = hak_word_count(bin->word);
    if (count) {
        size_t block = (size_t)(bin->base - row->start) / row->block_bytes;
        hak_atomic_u64 *word = &row->word[block / 64];
        hak_store_release(word, hak_load_relaxed(word) | bin->word);
        bin->word = 0;
        shelf->handed -= count;
    }
    shelf->current = NULL;
    uint32_t out = hak_row_out(row) - count;
    hak_row_arm(row, out, out);
    if (out == 0) {
        finish(heap, slab);
    } else if (out < hak_slab_class(slab)->capacity) {
        hak_list_push(heap, slab);
    } else {
        slab->place = HAK_SLAB_FULL;
        hak_row_arm(row, out, out / 8 ? out / 8 : 1);
    }
}

static void event_current(struct hak_heap *heap, struct hak_slab *slab, struct hak_row *row, uint32_t out) {
    uint32_t held = out - hak_word_count(heap->bin[slab->class_index].word);
    uint32_t window = hak_load_relaxed(&hak_window_blocks[slab->class_index]);
    uint32_t countdown = held > window ? held : window;
    if (held > 0 && held < window && !slab->exact) { /* once a take: the last block's free is not to be missed */
        slab->exact = 1;
        countdown = held;
    }
    hak_row_arm(row, out, countdown);
    slab->cursor = 0; /* the lowest words again: they are warm, and the slab's end stays untouched */
    if (held != 0) return;
    if (!hak_slab_claim(slab)) return;
    uint64_t all = hak_slab_pages(hak_slab_class(slab)), word_pages = 0;
    struct hak_bin *bin = &heap->bin[slab->class_index];
    if (bin->word) { /* blocks of the bin may be written to at any time: their pages stay */
        size_t start = (size_t)(bin->base - row->start), end = start + 64 * (size_t)row->block_bytes - 1;
        unsigned shift = hak_region.page_shift, first = (unsigned)(start >> shift), last = (unsigned)(end >> shift);
        word_pages = ~UINT64_C(0) << first & (last >= 63 ? ~UINT64_C(0) : hak_word_mask(0, last + 1));
    }
    bool touched = slab->returned != all;
    hak_slab_account_claimed(slab, all & ~word_pages);
    hak_slab_unclaim(slab);
    if (touched && HAK_UNLIKELY(hak_purge_near(0))) hak_bin_put_back(heap, slab->class_index);
}

static void event_partial(struct hak_heap *heap, struct hak_slab *slab, struct hak_row *row, uint32_t out) {
    if (out == 0) {
        hak_row_arm(row, 0, 0);
        hak_list_remove(heap, slab);
        finish(heap, slab);
        return;
    }
    uint32_t eighth = hak_slab_class(slab)->capacity / 8u;
    hak_row_arm(row, out, out > eighth ? out - eighth : out);
    if (hak_slab_claim(slab)) {
        hak_slab_account_claimed(slab, hak_slab_free_pages_claimed(slab));
        hak_slab_unclaim(slab);
    }
}

void hak_event(struct hak_heap *heap, struct hak_slab *slab) {
    struct hak_row *row = hak_slab_row(slab);
    uint32_t out = hak_row_out(row);
    HAK_COUNT(&heap->counters, free_event, 1);
    hak_slab_check(slab);
    if (slab->place == HAK_SLAB_CURRENT) {
        event_current(heap, slab, row, out);
    } else if (slab->place == HAK_SLAB_PARTIAL) {
        event_partial(heap, slab, row, out);
    } else if (!slab->pending) {
        HAK_COUNT(&heap->counters, slab_relisted, 1);
        hak_list_push(heap, slab);
        uint32_t half = hak_slab_class(slab)->capacity / 2u;
        if (out == 0) event_partial(heap, slab, row, out);
        else hak_row_arm(row, out, out > half ? out - half : out);
    }
}
