/* secure_word.h - the word behind a block and what lies between, inline: for slab/secure.c and for malloc and free in heap/secure.c.
 *
 * Owns:      nothing; secure.h says what stands where.
 * Threads:   any.
 * Measured:  as calls of slab/secure.c, with eight bytes at a time: 740 instructions for a malloc and free of 64 bytes by turns, the workload's too; 552 now.
 */
#ifndef HAK_SLAB_SECURE_WORD_H
#define HAK_SLAB_SECURE_WORD_H

#include "base/multiply.h"
#include "slab/secure.h"

#include <string.h>

enum { HAK_SECURE_FILLED_MAX = 32, HAK_SECURE_BETWEEN_SHIFT = 48 };
HAK_STATIC(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

/* Of the program's memory: a block begins at a multiple of 16, the rest need not. */
typedef uint64_t __attribute__((may_alias, vector_size(16))) hak_secure_two;
typedef uint64_t __attribute__((may_alias, vector_size(16), aligned(1))) hak_secure_any_two;

/* Both halves of a product, folded, as Wang Yi's wyhash and wyrand have it: not to be undone, and two instructions. */
HAK_INLINE uint64_t hak_secure_mixed(uint64_t a, const uint64_t *b) {
    uint64_t low, high = hak_multiply(a, b, &low);
    return high ^ low;
}

/* The next number after the state, which begins with any: not to be foretold by who does not know the keys. A handler that comes
 * between load and store draws the same one. */
HAK_INLINE uint64_t hak_secure_random(uint64_t *state) {
    *state += hak_secure.odd;
    return hak_secure_mixed(*state ^ hak_secure.key ^ (uintptr_t)state, state);
}

/* A bit of a word that is not 0, each as likely as the others. */
HAK_INLINE unsigned hak_secure_draw(uint64_t word, uint64_t *state) {
    uint64_t sums = hak_word_sums(word), random = hak_secure_random(state);
    return hak_word_ranked(word, sums, (unsigned)((random & UINT32_MAX) * (sums >> 56) >> 32) + 1);
}

HAK_INLINE uint64_t hak_secure_word_of(const char *block) {
    uint64_t word = hak_secure_mixed((uintptr_t)block ^ hak_secure.key, &hak_secure.odd);
    return word | 0x80; /* neither the end of a string nor a letter of it */
}
HAK_INLINE uint64_t *hak_secure_place_of(const char *block, size_t block_bytes) {
    return (uint64_t *)(uintptr_t)(block + block_bytes - HAK_SECURE_WORD_BYTES);
}

/* Eight bytes, likewise. */
HAK_INLINE uint64_t hak_secure_filling(uint64_t word) { return ((word >> 40 & 0xff) | 0x80) * UINT64_C(0x0101010101010101); }
HAK_INLINE uint64_t hak_secure_read(const char *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}
HAK_INLINE bool hak_secure_is_zero(hak_secure_two bytes) { return (bytes[0] | bytes[1]) == 0; }

/* Of the sixteen bytes in front of the word, those that lie between, where they are sixteen at most. */
HAK_INLINE hak_secure_two hak_secure_between_mask(size_t between) {
    extern const char hak_secure_masks[32]; /* sixteen zeros, sixteen of all bits */
    return *(const hak_secure_any_two *)(const void *)(hak_secure_masks + between);
}
/* The smallest block has but eight. */
HAK_INLINE uint64_t hak_secure_few_mask(size_t between) { return between ? ~UINT64_C(0) << (64 - 8 * between) : 0; }
/* Of more than sixteen: the last sixteen of those that are filled. */
HAK_INLINE size_t hak_secure_filled_last(size_t between) {
    return (between < HAK_SECURE_FILLED_MAX ? between : (size_t)HAK_SECURE_FILLED_MAX) - sizeof(hak_secure_two);
}

/* Few branches, and those by the block's size: what is asked for varies. */
HAK_INLINE void hak_secure_fill(char *block, size_t block_bytes, size_t between, uint64_t filling) {
    char *end = block + block_bytes - HAK_SECURE_WORD_BYTES;
    hak_secure_two pattern = { filling, filling };
    if (block_bytes < 2 * sizeof pattern) {
        uint64_t mask = hak_secure_few_mask(between), merged = (hak_secure_read(end - 8) & ~mask) | (filling & mask);
        memcpy(end - 8, &merged, sizeof merged);
    } else if (between <= sizeof pattern) {
        hak_secure_any_two *last = (hak_secure_any_two *)(void *)(end - sizeof pattern);
        hak_secure_two mask = hak_secure_between_mask(between);
        *last = (*last & ~mask) | (pattern & mask);
    } else {
        *(hak_secure_any_two *)(void *)(end - between) = pattern;
        *(hak_secure_any_two *)(void *)(end - between + hak_secure_filled_last(between)) = pattern;
    }
}

HAK_INLINE bool hak_secure_is_filled(const char *block, size_t block_bytes, size_t between, uint64_t filling) {
    const char *end = block + block_bytes - HAK_SECURE_WORD_BYTES;
    hak_secure_two pattern = { filling, filling };
    if (block_bytes < 2 * sizeof pattern) return ((hak_secure_read(end - 8) ^ filling) & hak_secure_few_mask(between)) == 0;
    if (between <= sizeof pattern)
        return hak_secure_is_zero((*(const hak_secure_any_two *)(const void *)(end - sizeof pattern) ^ pattern) & hak_secure_between_mask(between));
    hak_secure_two first = *(const hak_secure_any_two *)(const void *)(end - between);
    return hak_secure_is_zero((first ^ pattern) | (*(const hak_secure_any_two *)(const void *)(end - between + hak_secure_filled_last(between)) ^ pattern));
}

/* All but the word. */
HAK_INLINE void hak_secure_clear(char *block, size_t block_bytes) {
    enum { FEW = 256 };
    if (block_bytes > FEW) {
        memset(block, 0, block_bytes - HAK_SECURE_WORD_BYTES);
        return;
    }
    hak_secure_two *at = (hak_secure_two *)(void *)block, none = { 0 };
    for (char *end = block + block_bytes - sizeof none; (char *)at < end; at++) {
        *at = none;
        __asm__("" : "+r"(at)); /* or gcc makes a call of memset of it */
    }
    memcpy(at, &none, sizeof none - HAK_SECURE_WORD_BYTES);
}
/* Has any of that? */
HAK_INLINE bool hak_secure_is_clear(const char *block, size_t block_bytes) {
    const hak_secure_two *at = (const hak_secure_two *)(const void *)block;
    size_t count = block_bytes / sizeof *at - 1, i = 0;
    hak_secure_two set = { hak_secure_read(block + block_bytes - sizeof *at), 0 };
    for (; i + 4 <= count; i += 4) set |= at[i] | at[i + 1] | at[i + 2] | at[i + 3];
    for (; i < count; i++) set |= at[i];
    return hak_secure_is_zero(set);
}

HAK_INLINE void hak_secure_arm_word(char *block, size_t block_bytes, size_t bytes, uint64_t word) {
    size_t between = block_bytes - HAK_SECURE_WORD_BYTES - bytes;
    hak_secure_fill(block, block_bytes, between, hak_secure_filling(word));
    __atomic_store_n(hak_secure_place_of(block, block_bytes), word ^ (uint64_t)between << HAK_SECURE_BETWEEN_SHIFT, __ATOMIC_RELEASE);
}

/* A free block becomes the program's, as hak_secure_arm() does. False: it was written to (hak_secure_written() says where). */
HAK_INLINE bool hak_secure_begin_block(char *block, size_t block_bytes, size_t bytes) {
    uint64_t word = hak_secure_word_of(block), last = __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_RELAXED);
    if (HAK_UNLIKELY((last != 0) & (last != ~word)) || HAK_UNLIKELY(!hak_secure_is_clear(block, block_bytes))) return false;
    hak_secure_arm_word(block, block_bytes, bytes, word);
    return true;
}

/* Is it live, and whole? *seen is its word then. */
HAK_INLINE bool hak_secure_is_whole(const char *block, size_t block_bytes, uint64_t word, uint64_t *seen) {
    *seen = __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_ACQUIRE);
    uint64_t differs = *seen ^ word, between = differs >> HAK_SECURE_BETWEEN_SHIFT;
    if (HAK_UNLIKELY(differs << (64 - HAK_SECURE_BETWEEN_SHIFT) != 0) || HAK_UNLIKELY(between > block_bytes - HAK_SECURE_WORD_BYTES)) return false;
    return HAK_LIKELY(hak_secure_is_filled(block, block_bytes, between, hak_secure_filling(word)));
}
/* A live block becomes a free one. False: it is none, or was overrun: hak_secure_end() says which. */
HAK_INLINE bool hak_secure_end_block(char *block, size_t block_bytes) {
    uint64_t word = hak_secure_word_of(block), seen;
    if (HAK_UNLIKELY(!hak_secure_is_whole(block, block_bytes, word, &seen))) return false;
    uint64_t *place = hak_secure_place_of(block, block_bytes);
    if (HAK_UNLIKELY(!__atomic_compare_exchange_n(place, &seen, ~word, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))) return false;
    hak_secure_clear(block, block_bytes);
    return true;
}

#endif
