/* middle.c - blocks above 1 KiB that their owner frees: the last few of each class are kept, still warm.
 *
 * Bits in address order say nothing about what was touched last, and a cold block of some KiB costs more than the
 * whole allocation. So the last blocks freed are handed out first. What is kept is counted as free memory and
 * falls under its bound (memory/purge.h): when that is broken, by whomever, the next look gives all back, or in its grace
 * all but the heap's part; so does every round of the sweep, a run of frees of one class, and, where threads are many,
 * their part of 4 MiB. The visits that small classes make for the library's sake are made here.
 *
 * Threads:   the owner.
 * Invariant: a kept block is clear in its slab's row and counted in its `out`, like a block in the bin; so its
 *            pages are not returned.
 * Measured:  random mixed 1-32 KiB, docs/experiments.md.
 * Rejected:  remembering the addresses of blocks that are free in their row, and taking them by the claim: three
 *            times the instructions. Putting freed blocks into the bin: as many, and only for one word of one slab.
 */
#include "heap/middle.h"

#include "memory/purge.h"

/* No two kept ones have the same number. */
static HAK_NOINLINE bool is_kept(const struct hak_middle *middle, const void *block, uint64_t index) {
    uintptr_t wanted = (uintptr_t)block | index % HAK_MIDDLE_NUMBERS;
    for (unsigned i = hak_middle_count(middle); i-- > 0;) {
        uintptr_t differs = middle->block[i] ^ wanted;
        if (differs % HAK_MIDDLE_NUMBERS == 0) return differs == 0;
    }
    return false;
}

static uint64_t index_of(const void *block) {
    const struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    uint64_t rest;
    return hak_multiply((uint64_t)((const char *)block - record->start), &record->reciprocal, &rest);
}

bool hak_middle_has(struct hak_heap *heap, unsigned class_index, const void *block) {
    if (!hak_class_is_middle(class_index)) return false;
    return is_kept(hak_middle_of(heap, class_index), block, index_of(block));
}

void hak_middle_collect(struct hak_heap *heap, struct hak_slab *slab) {
    if (!hak_class_is_middle(slab->class_index)) return;
    const struct hak_middle *middle = hak_middle_of(heap, slab->class_index);
    for (unsigned i = 0; i < hak_middle_count(middle); i++) {
        const char *block = hak_middle_block(middle, i);
        if (hak_slab_of(hak_granule_at(hak_granule_of(block))) != slab) continue;
        hak_middle_look(block);
    }
}

/* The strangers' word of a block that its owner freed, and the block's bit there. */
HAK_INLINE const hak_atomic_u64 *strangers_word(const void *block, uint64_t *bit) {
    const struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    uint64_t index = index_of(block);
    *bit = UINT64_C(1) << index % 64;
    hak_atomic_u64 *word = &record->words[index / 64];
    return hak_slab_remote_word(word, hak_slab_behind(hak_granule_of(record->start), word));
}

void hak_middle_look(const void *block) {
    uint64_t bit;
    if (HAK_UNLIKELY(hak_load_relaxed(strangers_word(block, &bit)) & bit)) hak_slab_misuse("free", block);
}

HAK_NOINLINE void hak_middle_look_last(const struct hak_middle *middle, unsigned count) {
    uint64_t bit;
    hak_middle_look(hak_middle_block(middle, count - 1));
    if (count > 1) __builtin_prefetch(strangers_word(hak_middle_block(middle, count - 2), &bit)); /* the next; a line that others write */
}

static void row_free(struct hak_heap *heap, struct hak_row *row, unsigned index) {
    hak_atomic_u64 *word = &row->word[index / 64];
    hak_store_release(word, hak_load_relaxed(word) | UINT64_C(1) << index % 64); /* as in front/fast.h */
    if (HAK_UNLIKELY(--row->countdown == 0)) {
        hak_fork_check(heap);
        hak_event(heap, row->slab);
    }
}

static void block_to_row(struct hak_heap *heap, const char *block) {
    struct hak_row *row = hak_row_of(hak_granule_at(hak_granule_of(block))->words);
    row_free(heap, row, (unsigned)((size_t)(block - row->start) / row->block_bytes));
}

static void flush_class(struct hak_heap *heap, struct hak_middle *middle) {
    for (unsigned count; (count = hak_middle_count(middle)) > 0;) {
        char *block = hak_middle_block(middle, --count);
        uint64_t number = middle->block[count] % HAK_MIDDLE_NUMBERS;
        __atomic_store_n(&middle->state, (uint16_t)(middle->state - 1), __ATOMIC_RELEASE);
        middle->numbers = hak_word_without(middle->numbers, number); /* second: none is kept without its bit, if a handler leaves by longjmp */
        hak_free_note_in(&heap->free_sum, -(int64_t)middle->block_bytes);
        block_to_row(heap, block);
    }
    if (HAK_UNLIKELY(middle->numbers != 0)) middle->numbers = 0; /* a handler that was left by longjmp may have left one */
}

/* Down to so much, the largest first. */
static HAK_COLD void flush_to(struct hak_heap *heap, uint64_t most) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < HAK_MIDDLE_CLASSES; i++) {
        const struct hak_middle *middle = &heap->middle[i];
        unsigned count = hak_middle_count(middle);
        bytes += count * (uint64_t)middle->block_bytes;
    }
    for (unsigned i = HAK_CLASS_COUNT; --i > HAK_SMALL_CLASS_MAX && bytes > most;) {
        struct hak_middle *middle = hak_middle_of(heap, hak_class_by_size(i));
        bytes -= hak_middle_count(middle) * (uint64_t)middle->block_bytes;
        flush_class(heap, middle);
    }
}

void hak_middle_flush(struct hak_heap *heap) {
    hak_middle_settle(heap);
    for (unsigned i = 0; i < HAK_MIDDLE_CLASSES; i++) flush_class(heap, &heap->middle[i]);
}

HAK_COLD void hak_middle_take_back(struct hak_heap *heap, unsigned class_index, void *block) {
    struct hak_middle *middle = hak_middle_of(heap, class_index);
    unsigned count = hak_middle_count(middle);
    hak_owner_add(&middle->handed, -UINT64_C(1));
    uint64_t number = index_of(block) % HAK_MIDDLE_NUMBERS, bit = UINT64_C(1) << number;
    if (HAK_UNLIKELY(count == HAK_MIDDLE_BLOCKS || middle->numbers & bit)) { /* a signal handler freed one meanwhile */
        block_to_row(heap, block);
        return;
    }
    middle->block[count] = (uintptr_t)block | number;
    middle->numbers |= bit;
    __atomic_store_n(&middle->state, (uint16_t)(count + 1), __ATOMIC_RELEASE);
    heap->middle_in -= middle->block_bytes;
}

/* Every so many bytes freed, less those taken again, and every so many frees, as if it were a visit. Where many threads wait, what each of them
 * keeps would fill the bound together: who runs would give back all of his own, and each page as soon as it is free, for ever. */
HAK_NOINLINE void hak_middle_chores(struct hak_heap *heap) {
    enum { MOST = HAK_MIDDLE_MOST, LEAST = 32 << 10, ALL = 4 << 20 };
    uint32_t heaps = hak_heap_crowd();
    int64_t most = heaps <= ALL / MOST ? MOST : heaps < ALL / LEAST ? ALL / heaps : LEAST;
    bool is_much = most < MOST && heap->middle_in < 0;
    hak_middle_settle(heap);
    heap->middle_in = heap->middle_from = most; /* at once: what a handler frees from here on counts */
    hak_free_flush(&heap->free_sum);
    if (is_much || HAK_UNLIKELY(hak_purge_over(0))) flush_to(heap, is_much || hak_purge_over_long() ? 0 : hak_heap_keep_most());
    hak_visit_chores_due(heap);
}

/* The block is of the row, which may end. */
static void free_to_row(struct hak_heap *heap, struct hak_row *row, uint64_t index) {
    uint32_t bytes = row->block_bytes;
    row_free(heap, row, (unsigned)index);
    if ((heap->clock_in -= (int32_t)bytes) <= 0) hak_middle_chores(heap);
}

HAK_NOINLINE void hak_middle_free_to_row(struct hak_heap *heap, struct hak_row *row, uint64_t index) {
    struct hak_middle *middle = hak_middle_of(heap, row->class_index);
    if (middle->state < HAK_MIDDLE_RUN * HAK_MIDDLE_ONE_RUN) middle->state = (uint16_t)(middle->state + HAK_MIDDLE_ONE_RUN);
    else flush_class(heap, middle); /* nobody takes any: what is kept would keep its slabs from ending */
    free_to_row(heap, row, index);
}

HAK_NOINLINE void hak_middle_free_numbered(char *block, struct hak_row *row, struct hak_heap *heap, const char *function, uint64_t index) {
    bool is_free = hak_word_has(hak_load_relaxed(&row->word[index / 64]), index) || is_kept(hak_middle_of(heap, row->class_index), block, index);
    if (HAK_UNLIKELY(is_free)) hak_slab_misuse(function, block);
    /* Of another slab, or further on in this one: two of the same number are not kept. Where few numbers come, or a slab has but few, the places
     * are never all taken, and the run of frees is counted here. */
    struct hak_middle *middle = hak_middle_of(heap, row->class_index);
    struct hak_middle_again *again = &heap->middle_again[row->class_index - HAK_SMALL_CLASS_MAX - 1];
    if (again->handed != (uint32_t)middle->handed) *again = (struct hak_middle_again){ (uint32_t)middle->handed, 0 };
    if (HAK_UNLIKELY(++again->count > HAK_MIDDLE_RUN)) {
        again->count = 0;
        __atomic_store_n(&middle->state, (uint16_t)(HAK_MIDDLE_RUN * HAK_MIDDLE_ONE_RUN + hak_middle_count(middle)), __ATOMIC_RELEASE);
        flush_class(heap, middle);
    }
    free_to_row(heap, row, index);
}

HAK_COLD void hak_middle_misuse(const char *function, const void *block) { hak_slab_misuse(function, block); }

void hak_middle_free(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function, unsigned class_index) {
    hak_middle_free_inline(block, record, heap, function, class_index);
}
