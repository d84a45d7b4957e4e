/* batch.h - blocks of other heaps that a thread frees, gathered by the word: given back in one go (heap/mail.c).
 *
 * Owns:      `batch` and `batch_tag` of a heap.
 * Threads:   the heap's own. heap/census.c reads batches of others: batch_begin() and hak_batch_flush_one() of heap/mail.c have the order.
 * Invariant: a batch holds something <=> its mask is not 0. A tag is no more than a hint: a signal handler may flush its batch meanwhile.
 * Measured:  who frees what another thread wrote reads it first, and what such a read takes is hidden behind what follows as far as the
 *            processor looks ahead, some hundreds of instructions: each one here costs more than its cycle (docs/experiments.md).
 */
#ifndef HAK_HEAP_BATCH_H
#define HAK_HEAP_BATCH_H

#include "heap/heap.h"
#ifdef __SSE2__
#include <emmintrin.h>
#else
#include <string.h>
#endif

/* Four batches have the word's hash: the uppermost bits name these, sixteen others are its tag, never 0. */
enum { HAK_BATCH_WAYS = 4, HAK_BATCH_SET_BITS = 4, HAK_BATCH_TAG_BITS = 16 };
HAK_INLINE uint64_t hak_batch_hash(const hak_atomic_u64 *word) {
    HAK_STATIC((int)HAK_BATCHES == (1 << HAK_BATCH_SET_BITS) * (int)HAK_BATCH_WAYS && (1 << HAK_BATCH_SET_BITS) * 2 == 32);
    return (uintptr_t)word * UINT64_C(0x9e3779b97f4a7c15);
}
HAK_INLINE unsigned hak_batch_set(uint64_t hash) { return (unsigned)(hash >> (64 - HAK_BATCH_SET_BITS)); }
HAK_INLINE uint16_t hak_batch_tag_of(uint64_t hash) { return (uint16_t)(hash >> (64 - HAK_BATCH_SET_BITS - HAK_BATCH_TAG_BITS) | 1); }
HAK_INLINE void hak_batch_tag(struct hak_heap *self, const struct hak_batch *batch, uint16_t tag) { self->batch_tag[batch - self->batch] = tag; }

/* The first of a set's four batches that has this tag, as bytes from the set's first one; HAK_BATCH_NONE: none has. All are compared at once. */
enum { HAK_BATCH_NONE = HAK_BATCH_WAYS * sizeof(struct hak_batch) };
HAK_INLINE size_t hak_batch_way(const struct hak_heap *self, unsigned set, uint16_t tag) {
    const uint16_t *tags = &self->batch_tag[set * HAK_BATCH_WAYS];
    HAK_STATIC(sizeof(struct hak_batch) == 32 && sizeof *tags == 2 && HAK_BATCH_WAYS == 4);
#ifdef __SSE2__
    __m128i have = _mm_loadl_epi64((const __m128i *)(const void *)tags), want = _mm_shufflelo_epi16(_mm_cvtsi32_si128(tag), 0);
    unsigned like = (uint8_t)_mm_movemask_epi8(_mm_cmpeq_epi16(have, want)); /* two bits for each */
    return HAK_LIKELY(like != 0) ? (size_t)hak_word_first(like) * 16 : HAK_BATCH_NONE;
#else
    static const uint64_t ONES = UINT64_C(0x0001000100010001);
    uint64_t have;
    memcpy(&have, tags, sizeof have);
    uint64_t unlike = have ^ tag * ONES, like = (unlike - ONES) & ~unlike & ONES << 15; /* right up to the lowest that is like it, which is Mycroft's */
    return HAK_LIKELY(like != 0) ? (size_t)(hak_word_first(like) - 15) * 2 : HAK_BATCH_NONE;
#endif
}
HAK_INLINE struct hak_batch *hak_batch_at(struct hak_heap *self, unsigned set, size_t way) {
    return (struct hak_batch *)(void *)((char *)&self->batch[set * HAK_BATCH_WAYS] + way);
}

/* The word's batch; NULL: it has none. Which of the four it is nobody could foretell where blocks come in no order. */
HAK_INLINE struct hak_batch *hak_batch_find(struct hak_heap *self, const hak_atomic_u64 *word) {
    uint64_t hash = hak_batch_hash(word);
    size_t way = hak_batch_way(self, hak_batch_set(hash), hak_batch_tag_of(hash));
    if (way == HAK_BATCH_NONE) return NULL;
    struct hak_batch *batch = hak_batch_at(self, hak_batch_set(hash), way);
    return HAK_LIKELY(batch->word == word) && HAK_LIKELY(batch->mask != 0) ? batch : NULL;
}

HAK_COLD __attribute__((noreturn)) void hak_batch_twice(const struct hak_batch *batch, uint64_t bits);
void hak_batch_flush_one(struct hak_heap *self, struct hak_batch *batch);

HAK_INLINE void hak_batch_add(struct hak_heap *self, struct hak_batch *batch, unsigned index) {
    uint64_t bit = UINT64_C(1) << index % 64;
    if (HAK_UNLIKELY(batch->mask & bit)) hak_batch_twice(batch, bit);
    batch->mask |= bit;
    if (HAK_UNLIKELY(--batch->room == 0)) hak_batch_flush_one(self, batch);
}

/* A block of another heap's slab is freed by the program: with those of its word, if there is a batch of them. False: nothing has happened. */
HAK_INLINE bool hak_batch_free(struct hak_heap *self, const struct hak_granule *record, unsigned index) {
    struct hak_batch *batch = hak_batch_find(self, &record->words[index / 64]);
    if (HAK_UNLIKELY(batch == NULL)) return false;
    HAK_COUNT(&self->counters, free_stranger, 1);
    hak_batch_add(self, batch, index);
    return true;
}

#endif
