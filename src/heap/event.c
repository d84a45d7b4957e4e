/* event.c - a slab's countdown has ended: the free that ended it, or the owner's collection, comes here.
 *
 *   CURRENT  arm again for what the program holds; if that is nothing, take the bin's word back, count the
 *            pages, and if free memory has broken its bound for long, return them and end the slab
 *   FULL     an eighth is free: back to the list
 *   PARTIAL  half free, an eighth left: count pages, return them if the bound is broken; nothing left: end it
 *
 * Threads:   the owner (of a dead heap: who made it BUSY).
 * Rejected:  relisting at the first free: 39 ns instead of 18 in random mixed with 65,536 slots.
 */
#include "heap/family.h"
#include "heap/letters.h"

#include "memory/purge.h"

/* --- lists: what `next` says is so, `prev` is a hint. A handler that leaves a change by longjmp leaves slabs that are in no list, which end
 * when they are empty; none that is in a list and ended --- */

void hak_list_push(struct hak_heap *heap, struct hak_slab *slab) {
    hak_slab_name *head = &hak_shelf_of(heap, slab->class_index)->partial;
    hak_slab_name name = hak_slab_name_of(slab);
    HAK_ASSERT(!slab->next && !slab->prev && !slab->pending);
    slab->place = HAK_SLAB_PARTIAL;
    slab->prev = 0;
    hak_slab_name first = *head;
    do { /* a signal handler that allocates takes slabs off the list: what it took must not be in it again */
        slab->next = first;
        atomic_signal_fence(memory_order_seq_cst);
    } while (!__atomic_compare_exchange_n(head, &first, name, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    atomic_signal_fence(memory_order_seq_cst);
    if (first && slab->next == first) hak_slab_named(first)->prev = name;
}

/* What names the slab; NULL: it is in no list. */
static HAK_COLD hak_slab_name *link_find(hak_slab_name *link, hak_slab_name name) {
    while (*link && *link != name) link = &hak_slab_named(*link)->next;
    return *link ? link : NULL;
}

void hak_list_remove(struct hak_heap *heap, struct hak_slab *slab) {
    hak_slab_name *head = &hak_shelf_of(heap, slab->class_index)->partial, *link = head, name = hak_slab_name_of(slab);
    if (*head != name) {
        link = slab->prev ? &hak_slab_named(slab->prev)->next : NULL;
        if (HAK_UNLIKELY(!link || *link != name)) link = link_find(head, name);
    }
    struct hak_slab *next = hak_slab_named(slab->next);
    if (next && next->prev == name) next->prev = link == head ? 0 : slab->prev; /* first: while it is named, it is in the list */
    atomic_signal_fence(memory_order_seq_cst);
    if (HAK_LIKELY(link != NULL)) *link = slab->next;
    atomic_signal_fence(memory_order_seq_cst);
    slab->next = slab->prev = 0;
}

/* --- the end of a slab --- */

/* It is claimed. */
static void slab_end(struct hak_heap *heap, struct hak_slab *slab) {
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->letters) != 0)) hak_letters_slab_ends(heap, slab);
    HAK_COUNT(&heap->counters, slab_released, 1);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) hak_family_slab_ends(heap, slab);
    hak_slab_release_claimed(slab, &heap->free_sum);
}

/* Free memory is above its bound for long. Who frees so much may next to nothing soon, and the rest of it then waits for visits. */
static HAK_COLD void excess(struct hak_heap *heap) {
    hak_sweep_excess();
    if (heap->at_hand_most == 0) heap->at_hand_most = HAK_AT_HAND_ASKED;
}

/* `slab` is in no list and all its blocks are free. Mail for it may be under way: it will find no slab, and
 * nobody cuts a new one here before it arrived (slab_make; test/model proves it). */
void hak_event_finish(struct hak_heap *heap, struct hak_slab *slab) {
    if (HAK_UNLIKELY(!hak_slab_claim(slab))) {
        slab->place = HAK_SLAB_FULL;
        slab->pending = 1;
        slab->next = heap->pending;
        __atomic_store_n(&heap->pending, hak_slab_name_of(slab), __ATOMIC_RELAXED); /* of a dead heap any thread looks whether there is one */
        hak_heap_chores_call(heap);
        HAK_COUNT(&heap->counters, event_pending, 1);
        return;
    }
    slab_end(heap, slab);
    if (hak_purge_is_over()) excess(heap);
}

HAK_COLD void hak_event_pending(struct hak_heap *heap) {
    hak_slab_name name = heap->pending;
    __atomic_store_n(&heap->pending, 0, __ATOMIC_RELAXED);
    while (name) {
        struct hak_slab *slab = hak_slab_named(name);
        name = slab->next;
        slab->next = 0;
        slab->pending = 0;
        hak_event_finish(heap, slab);
    }
}

/* --- the word in use --- */

/* Blocks of the bin go back into the row; returns how many. They leave the bin first: a handler that leaves between by longjmp loses
 * them, where both would hand them out. */
static uint32_t word_put_back(struct hak_heap *heap, struct hak_row *row) {
    struct hak_bin *bin = hak_bin_of(heap, row->class_index);
    uint32_t count = hak_word_count(bin->word);
    if (count == 0) return 0;
    size_t block = (size_t)(bin->base - row->start) / row->block_bytes;
    hak_atomic_u64 *word = &row->word[block / 64];
    uint64_t back = bin->word;
    __atomic_store_n(&bin->word, 0, __ATOMIC_RELAXED);
    hak_store_release(word, hak_load_relaxed(word) | back);
    hak_owner_add(&hak_shelf_of(heap, row->class_index)->handed, -(uint64_t)count);
    hak_owner_add(&hak_shelf_of(heap, row->class_index)->ahead, -(uint64_t)count);
    return count;
}

HAK_COLD void hak_bin_trim(struct hak_heap *heap, unsigned shelf_index, unsigned keep) {
    struct hak_bin *bin = hak_bin_of(heap, shelf_index);
    struct hak_shelf *shelf = hak_shelf_of(heap, shelf_index);
    unsigned count = hak_word_count(bin->word);
    struct hak_row *row = shelf->current;
    if (count <= keep || !row) return; /* no row: a handler left a visit that had filled the bin */
    uint64_t kept = keep ? hak_word_lowest(bin->word, keep).bits : 0, surplus = bin->word & ~kept;
    size_t block = (size_t)(bin->base - row->start) / row->block_bytes;
    hak_atomic_u64 *word = &row->word[block / 64];
    __atomic_store_n(&bin->word, kept, __ATOMIC_RELAXED); /* first, as in word_put_back() */
    hak_store_release(word, hak_load_relaxed(word) | surplus);
    hak_owner_add(&shelf->handed, -(uint64_t)(count - keep));
    hak_owner_add(&shelf->ahead, -(uint64_t)(count - keep));
    uint32_t out = hak_row_out(row) - (count - keep);
    hak_row_arm(row, out, row->countdown < out ? row->countdown : out);
}

void hak_bin_put_back(struct hak_heap *heap, unsigned shelf_index) {
    struct hak_shelf *shelf = hak_shelf_of(heap, shelf_index);
    struct hak_row *row = shelf->current;
    if (!row) return;
    uint32_t out = hak_row_out(row) - word_put_back(heap, row);
    struct hak_slab *slab = row->slab;
    shelf->current = NULL;
    hak_row_arm(row, out, out);
    if (out == 0) {
        hak_event_finish(heap, slab);
    } else if (out < hak_slab_class(slab)->capacity) {
        hak_list_push(heap, slab);
    } else {
        slab->place = HAK_SLAB_FULL;
        hak_row_arm(row, out, out / 8 ? out / 8 : 1);
    }
}

HAK_COLD size_t hak_event_make_room(struct hak_heap *heap, size_t count, bool takes_clean) {
    enum { MUCH_BYTES = 128 << 10 }; /* worth a slab's end and a cut each time */
    if (!takes_clean && !hak_span_next_is_clean(count)) return HAK_NO_GRANULE;
    heap->may_make_room = 0;
    for (unsigned index = 1; index < hak_shelf_end(heap); index++) {
        struct hak_shelf *shelf = hak_shelf_of(heap, index);
        struct hak_row *row = shelf->current;
        if (!row || hak_row_out(row) != 0 || hak_load_relaxed(&row->slab->counted_pages) == 0) continue;
        uint64_t *made_room = &heap->made_room[index / 64], bit = UINT64_C(1) << index % 64;
        size_t counted_bytes = (size_t)hak_load_relaxed(&row->slab->counted_pages) << row->slab->page_shift;
        if ((*made_room & bit) && counted_bytes < MUCH_BYTES) continue;
        heap->may_make_room = 1;
        if (hak_slab_class(row->slab)->granules < count || !hak_slab_claim(row->slab)) continue;
        *made_room |= bit;
        shelf->current = NULL;
        size_t granule = hak_slab_granule(row->slab);
        slab_end(heap, row->slab);
        return granule;
    }
    return HAK_NO_GRANULE;
}

static void note_idle(struct hak_slab *slab) {
    unsigned idle = slab->idle;
    hak_slab_flags_set(slab, (uint8_t)(!(idle & 1) ? HAK_SLAB_IDLE : !(idle & 2) ? HAK_SLAB_IDLE << 1 : HAK_SLAB_IDLE << 2));
}

static void event_current(struct hak_heap *heap, struct hak_slab *slab, struct hak_row *row, uint32_t out) {
    uint32_t held = out - hak_word_count(hak_bin_of(heap, slab->class_index)->word);
    uint32_t few = hak_load_relaxed(&hak_shares[slab->class_index].few);
    uint32_t countdown = held > few ? held : few;
    if (held > 0 && held < few && !slab->exact) { /* once a take: the last block's free is not to be missed */
        hak_slab_flags_set(slab, HAK_SLAB_EXACT);
        countdown = held;
    }
    hak_row_arm(row, out, countdown);
    hak_store_relaxed(&slab->cursor, 0); /* the lowest words again: they are warm, and the slab's end stays untouched */
    if (held != 0) {
        slab->idle = 0;
        return;
    }
    note_idle(slab);
    word_put_back(heap, row); /* or its pages could never go; the next visit takes it again */
    hak_row_arm(row, 0, 0);
    if (!hak_slab_claim(slab)) return; /* a third thread returns pages of it; the rest is for the next who looks */
    if (hak_slab_account_claimed(slab, ~UINT64_C(0), &heap->free_sum) == 0) {
        hak_slab_unclaim(slab);
        heap->may_make_room = 1;
    } else { /* free memory breaks its bound: the span is better where any class can have it */
        hak_shelf_of(heap, slab->class_index)->current = NULL;
        slab_end(heap, slab);
        excess(heap);
    }
}

/* How many frees from here on. Where an eighth is held most pages still are, if many blocks share one; where a quarter of that is, most
 * are free, and so on down to a block for every fourth page: what is not seen then, until the slab is empty, is little. So it is where few
 * pages were ever used. */
static uint32_t until_next_look(const struct hak_slab *slab, uint32_t out) {
    const struct hak_class *class = hak_slab_class(slab);
    uint32_t eighth = class->capacity / 8u, few = 1u << (class->slab_shift - slab->page_shift) >> 2;
    if (out > eighth) return out - eighth;
    return out > few && (uint32_t)slab->frontier * class->block_bytes >> slab->page_shift > few ? out - out / 4 : out;
}

static void event_partial(struct hak_heap *heap, struct hak_slab *slab, struct hak_row *row, uint32_t out) {
    if (out == 0) {
        hak_row_arm(row, 0, 0);
        hak_list_remove(heap, slab);
        hak_event_finish(heap, slab);
        return;
    }
    hak_row_arm(row, out, until_next_look(slab, out));
    if (hak_slab_claim(slab)) {
        size_t bytes = 0;
        hak_slab_estimate_claimed(slab, &heap->free_sum);
        if (HAK_UNLIKELY(hak_purge_over_long()))
            bytes = hak_slab_account_claimed(slab, hak_slab_free_pages_claimed(slab), &heap->free_sum);
        hak_slab_unclaim(slab);
        if (HAK_UNLIKELY(bytes)) excess(heap);
    }
}

void hak_event(struct hak_heap *heap, struct hak_slab *slab) {
    struct hak_row *row = hak_slab_row(slab);
    uint32_t out = hak_row_out(row);
    HAK_COUNT(&heap->counters, free_event, 1);
    hak_slab_check(slab);
    /* it is not its shelf's: a handler left by longjmp where another took its place. It comes back like a full one. */
    bool is_current = slab->place == HAK_SLAB_CURRENT && hak_shelf_of(heap, slab->class_index)->current == row;
    if (is_current) {
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
    hak_heap_freed(heap);
}

/* The slab's heap is ours: it may not end meanwhile. */
static void full_relist(struct hak_heap *heap, struct hak_slab *slab) {
    if (slab->place != HAK_SLAB_FULL || slab->pending) return;
    if (hak_row_out(hak_slab_row(slab)) < hak_slab_class(slab)->capacity) hak_event(heap, slab);
}

/* Claimed for as long as slabs of it follow one another: `held`, or NULL. */
static struct hak_heap *dead_hold(struct hak_heap *held, struct hak_heap *heap) {
    if (held == heap) return held;
    if (held) hak_heap_dead_unclaim(held);
    return heap && hak_load_relaxed(&heap->state) == HAK_HEAP_DEAD && hak_heap_dead_claim(heap) ? heap : NULL;
}

HAK_COLD void hak_event_relist(struct hak_heap *heap) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    struct hak_heap *held = NULL;
    for (size_t number = 0; number < top; number++) {
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + hak_word_first(live));
            struct hak_heap *owner = hak_load_acquire(&slab->owner);
            if (owner != heap) {
                held = dead_hold(held, owner && hak_heap_is_kin(owner, heap) ? owner : NULL);
                /* it may have ended before, and be another's by now; one that is there, and of the heap that is held, stays */
                if (!held || !hak_slab_live(hak_slab_granule(slab)) || hak_load_acquire(&slab->owner) != held) continue;
            }
            full_relist(owner, slab);
        }
        held = dead_hold(held, NULL); /* not for the length of it all: who is born meanwhile waits for it but a moment */
    }
}
