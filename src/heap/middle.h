/* middle.h - a block above 1 KiB is freed by its owner: free's and delete's usual way for it, inline. See heap/middle.c.
 *
 * Threads:   the owner.
 */
#ifndef HAK_HEAP_MIDDLE_H
#define HAK_HEAP_MIDDLE_H

#include "heap/heap.h"

#include "base/multiply.h"

/* The highest byte of a product with the golden ratio (Knuth, The Art of Computer Programming 3, 6.4): neighbours differ. */
HAK_INLINE uint8_t hak_middle_tag(const void *block) { return (uint8_t)((uint32_t)(uintptr_t)block * UINT32_C(0x9e3779b9) >> 24); }

/* One free in twenty of those of a full dozen, or fewer, has the tag of another block. */
HAK_INLINE bool hak_middle_tags_have(hak_middle_tags tags, uint8_t tag) {
    typedef uint32_t four_words __attribute__((vector_size(HAK_MIDDLE_TAGS)));
    uint32_t four = tag * UINT32_C(0x01010101); /* one instruction less than gcc's sixteen bytes */
    hak_middle_tags equal = (hak_middle_tags)((hak_middle_tags)(four_words){ four, four, four, four } == tags);
#if defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)equal) != 0;
#else
    typedef uint64_t two_words __attribute__((vector_size(HAK_MIDDLE_TAGS)));
    two_words words = (two_words)equal;
    return (words[0] | words[1]) != 0;
#endif
}

/* Every so many bytes freed, less those taken again, and every so many frees, as if it were a visit. */
void hak_middle_chores(struct hak_heap *heap);
/* As many are kept as can be, or nobody takes any. */
void hak_middle_free_to_row(struct hak_heap *heap, struct hak_row *row, uint64_t index);
/* It may be one that is kept. */
void hak_middle_free_tagged(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function,
                            struct hak_middle *middle);

/* It does not return; but where gcc knows that, it makes a frame for the call, on free's usual way. */
void hak_middle_misuse(const char *function, const void *block);

/* Few values at a time and tail calls only, or it saves registers: what can be settled is settled at once, by branches never taken. */
HAK_INLINE void hak_middle_free_untagged(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function,
                                         struct hak_middle *middle, uint8_t tag) {
    hak_atomic_u64 *words = record->words;
    uint64_t rest, index = hak_multiply((uint64_t)(block - record->start), &record->reciprocal, &rest);
    if (HAK_UNLIKELY(rest >= record->reciprocal)) return hak_middle_misuse(function, block);
    if (HAK_UNLIKELY(hak_word_has(hak_load_relaxed(&words[index / 64]), index))) return hak_middle_misuse(function, block);
    uint32_t state = middle->state, bytes = hak_row_of(words)->block_bytes;
    if (HAK_UNLIKELY(((state + HAK_MIDDLE_TAGS - HAK_MIDDLE_BLOCKS) & (HAK_MIDDLE_TAGS | HAK_MIDDLE_RUN * HAK_MIDDLE_ONE_RUN)) != 0))
        return hak_middle_free_to_row(heap, hak_row_of(words), index);
    size_t count = (uint8_t)state;
    middle->block_bytes = (uint16_t)bytes;
    middle->tags = hak_middle_tags_more(middle->tags, tag);
    middle->block[count] = block;
    __atomic_store_n(&middle->state, (uint16_t)(state + HAK_MIDDLE_ONE_RUN + 1), __ATOMIC_RELEASE); /* a forked child finds a block for each */
    heap->free_sum += bytes;
    if (HAK_UNLIKELY(heap->free_sum > heap->middle_most) || HAK_UNLIKELY((heap->clock_in -= HAK_VISIT_CLOCK / 16) < 0))
        hak_middle_chores(heap);
}

HAK_INLINE void hak_middle_free_inline(char *block, const struct hak_granule *record, struct hak_heap *heap, const char *function,
                                       size_t class_index) {
    uint8_t tag = hak_middle_tag(block);
    struct hak_middle *middle = hak_middle_of(heap, class_index);
    if (HAK_UNLIKELY(hak_middle_tags_have(middle->tags, tag))) hak_middle_free_tagged(block, record, heap, function, middle);
    else hak_middle_free_untagged(block, record, heap, function, middle, tag);
}

#endif
