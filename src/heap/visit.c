/* visit.c - malloc's slow path: the bin is empty.
 *
 *   hak_visit
 *     chores            mail, pending events, the clock; in a child the first steps
 *     rare class        one block of the next coarser class, until 32 were asked for
 *     current slab      its next word; then what strangers gave back to it; else it is full
 *     partial slabs     of this class in this heap
 *     a dead heap's     partial slab of this class
 *     a new slab
 *
 * Threads:   the owner. Taking words needs the slab's claim, because a third thread may be returning its pages.
 * Measured:  a window of 24 KiB a visit: 8 KiB cost a quarter more time in a storm of small batches, 32 KiB more memory than
 *            peers take (docs/experiments.md).
 */
#include "heap/heap.h"

#include "rules/options.h"

void *(*hak_heap_on_shortage)(struct hak_heap *heap, unsigned class_index);

/* The next word of a slab goes into the bin, but for its first block, which is the result; NULL when it has none
 * now, *claimed when a third thread is at it. */
HAK_INLINE void *take(struct hak_heap *heap, unsigned class_index, struct hak_row *row, bool *claimed) {
    unsigned index;
    uint32_t count;
    struct hak_slab *slab = row->slab;
    *claimed = false;
    if (HAK_UNLIKELY(!hak_slab_claim(slab))) {
        *claimed = true;
        return NULL;
    }
    uint64_t word = hak_slab_take_claimed(slab, row, &index, &count, &heap->free_sum);
    hak_slab_unclaim(slab);
    if (HAK_UNLIKELY(word == 0)) return NULL;
    struct hak_bin *bin = &heap->bin[class_index];
    size_t bytes = row->block_bytes;
    char *base = row->start + (size_t)index * 64 * bytes;
    heap->shelf[class_index].handed += count;
    bin->base = base;
    /* release: base before word, so that a forked child finds a pair that fits */
    __atomic_store_n(&bin->word, word & (word - 1), __ATOMIC_RELEASE);
    return base + hak_word_first(word) * bytes;
}

static void become_full(struct hak_row *row) {
    uint32_t capacity = hak_slab_class(row->slab)->capacity;
    uint32_t share = capacity / (uint32_t)HAK_OPT(relist_share);
    row->slab->place = HAK_SLAB_FULL;
    hak_row_arm(row, capacity, share ? share : 1);
}

static void *take_from_strangers(struct hak_heap *heap, unsigned class_index) {
    struct hak_shelf *shelf = &heap->shelf[class_index];
    struct hak_row *row = shelf->current;
    bool claimed = !hak_slab_claim(row->slab);
    if (!claimed) {
        hak_slab_unclaim(row->slab);
        hak_middle_collect(heap, row->slab);
        uint32_t count = hak_slab_collect(row->slab);
        hak_row_arm(row, hak_row_out(row) - count, 1);
        HAK_COUNT(&heap->counters, collected, count);
        void *block = take(heap, class_index, row, &claimed);
        if (block) {
            HAK_COUNT(&heap->counters, visit_collect, 1);
            return block;
        }
    }
    shelf->current = NULL;
    if (claimed) {
        HAK_COUNT(&heap->counters, visit_claimed, 1);
        hak_list_push(heap, row->slab);
    } else {
        become_full(row);
    }
    return NULL;
}

static void *take_from_partial(struct hak_heap *heap, unsigned class_index) {
    struct hak_shelf *shelf = &heap->shelf[class_index];
    hak_slab_name next;
    for (struct hak_slab *slab = hak_slab_named(shelf->partial); slab; slab = hak_slab_named(next)) {
        struct hak_row *row = hak_slab_row(slab);
        bool claimed;
        next = slab->next;
        void *block = take(heap, class_index, row, &claimed);
        if (claimed) continue;
        hak_list_remove(heap, slab);
        if (block) {
            slab->place = HAK_SLAB_CURRENT;
            shelf->current = row;
            HAK_COUNT(&heap->counters, visit_partial, 1);
            return block;
        }
        become_full(row);
    }
    return NULL;
}

static void *take_from_dead(struct hak_heap *heap, unsigned class_index) {
    struct hak_heap *dead = hak_heap_dead_take();
    if (!dead) return NULL;
    void *block = NULL;
    hak_mail_take(dead);
    struct hak_slab *slab = hak_slab_named(dead->shelf[class_index].partial);
    if (slab && hak_slab_claim(slab)) {
        hak_list_remove(dead, slab);
        hak_slab_give_claimed(slab, heap);
        hak_slab_unclaim(slab);
        hak_list_push(heap, slab);
        block = take_from_partial(heap, class_index);
        if (block) HAK_COUNT(&heap->counters, visit_dead, 1);
    }
    hak_heap_dead_give(dead);
    return block;
}

static void *take_from_new(struct hak_heap *heap, unsigned class_index) {
    struct hak_slab *slab = hak_slab_cut(heap, class_index);
    if (!slab) return NULL;
    HAK_COUNT(&heap->counters, visit_new_slab, 1);
    heap->shelf[class_index].current = hak_slab_row(slab);
    bool claimed;
    void *block;
    do block = take(heap, class_index, hak_slab_row(slab), &claimed);
    while (HAK_UNLIKELY(claimed)); /* a sweep, at its one look */
    return block;
}

/* The class is rare in this heap so far: a block of the coarser one, or at last a slab of its own. */
static HAK_NOINLINE void *visit_rare(struct hak_heap *heap, unsigned class_index) {
    struct hak_shelf *shelf = &heap->shelf[class_index];
    unsigned coarse = hak_classes[class_index].coarse;
    shelf->rare = coarse == class_index ? HAK_RARE_BLOCKS : shelf->rare + 1;
    if (coarse != class_index) HAK_COUNT(&heap->counters, visit_coarse, 1);
    struct hak_bin *bin = &heap->bin[coarse];
    uint64_t word = bin->word;
    if (word == 0) return hak_visit(heap, coarse);
    bin->word = word & (word - 1);
    return bin->base + hak_word_first(word) * (size_t)hak_classes[coarse].block_bytes;
}

/* The current slab has no word left, or there is none. */
static HAK_NOINLINE void *visit_further(struct hak_heap *heap, unsigned class_index) {
    if (heap->shelf[class_index].rare < HAK_RARE_BLOCKS) return visit_rare(heap, class_index); /* it has no slab */
    hak_fork_check(heap);
    void *block = heap->shelf[class_index].current ? take_from_strangers(heap, class_index) : NULL;
    if (!block) block = take_from_partial(heap, class_index);
    if (block) return block;
    if (HAK_UNLIKELY(heap->is_survivor)) {
        hak_fork_rebuild(heap);
        block = take_from_partial(heap, class_index);
        if (block) return block;
    }
    if (HAK_UNLIKELY(hak_heap_dead_any())) {
        block = take_from_dead(heap, class_index);
        if (block) return block;
    }
    block = take_from_new(heap, class_index);
    return HAK_LIKELY(block != NULL) ? block : hak_heap_on_shortage(heap, class_index);
}

void hak_visit_chores(struct hak_heap *heap) {
    hak_fork_check(heap);
    if (heap->batch.mask) hak_batch_flush(heap);
    if (hak_load_relaxed(&heap->mail)) hak_mail_take(heap);
    if (heap->pending) hak_event_pending(heap);
    hak_sweep_clock(heap);
}

void *hak_visit(struct hak_heap *heap, unsigned class_index) {
    HAK_ASSERT(class_index > 0 && class_index < HAK_CLASS_COUNT && !heap->bin[class_index].word);
    struct hak_shelf *shelf = &heap->shelf[class_index];
    if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) hak_visit_chores(heap);
    struct hak_row *row = shelf->current;
    if (HAK_LIKELY(row != NULL)) {
        bool claimed;
        void *block = take(heap, class_index, row, &claimed);
        if (HAK_LIKELY(block != NULL)) {
            HAK_COUNT(&heap->counters, visit_next_word, 1);
            return block;
        }
    }
    return visit_further(heap, class_index);
}
