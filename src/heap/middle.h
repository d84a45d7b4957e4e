/* middle.h - a block above 1 KiB is freed by its owner: free's and delete's usual way for it, inline. See heap/middle.c.
 *
 * Threads:   the owner.
 */
#ifndef HAK_HEAP_MIDDLE_H
#define HAK_HEAP_MIDDLE_H

#include "heap/heap.h"

#include "base/multiply.h"

/* Every so many bytes freed, less those taken again, and every so many frees, as if it were a visit. */
void hak_middle_chores(struct hak_heap *heap);
/* As many are kept as can be, or nobody takes any. */
void hak_middle_free_to_row(struct hak_heap *heap, struct hak_row *row, uint64_t index);
/* It is free in its row, or a kept one has its number. */
void hak_middle_free_numbered(char *block, struct hak_row *row, struct hak_heap *heap, const char *function, uint64_t index);

/* It does not return; but where gcc knows that, it makes a frame for the call, on free's usual way. */
void hak_middle_misuse(const char *function, const void *block);

/* Few values at a time and tail calls only, or it saves registers: what can be settled is settled at once, by branches never taken. */
HAK_INLINE void hak_middle_free_inline(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function,
                                       size_t class_index) {
    struct hak_middle *middle = hak_middle_of(heap, class_index);
    hak_atomic_u64 *words = record->words;
    uint64_t rest, index = hak_multiply((uint64_t)(block - record->start), &record->reciprocal, &rest);
    if (HAK_UNLIKELY(rest >= record->reciprocal)) return hak_middle_misuse(function, block);
    uint64_t numbers = middle->numbers;
    if (HAK_UNLIKELY(hak_word_has(hak_load_relaxed(&words[index / 64]) | numbers, index)))
        return hak_middle_free_numbered(block, hak_row_of(words), heap, function, index);
    size_t count = middle->state, bytes = hak_row_of(words)->block_bytes;
    HAK_SAME(count); /* or it stays of 16 bits, and is extended thrice */
    if (HAK_UNLIKELY(count >= HAK_MIDDLE_BLOCKS)) return hak_middle_free_to_row(heap, hak_row_of(words), index);
    middle->block_bytes = (uint16_t)bytes;
    middle->numbers = numbers | UINT64_C(1) << index % HAK_MIDDLE_NUMBERS;
    middle->block[count] = (uintptr_t)block | index % HAK_MIDDLE_NUMBERS;
    __atomic_store_n(&middle->state, (uint16_t)(count + 1), __ATOMIC_RELEASE); /* a forked child finds a block for each */
    if (HAK_UNLIKELY((heap->middle_in -= (int64_t)bytes) < 0) || HAK_UNLIKELY((heap->clock_in -= HAK_VISIT_CLOCK / 16) < 0))
        hak_middle_chores(heap);
}

#endif
