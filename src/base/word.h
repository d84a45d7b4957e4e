/* word.h - questions to 64-bit words of bits.
 *
 * Owns:      nothing; pure functions.
 * Threads:   any.
 */
#ifndef HAK_BASE_WORD_H
#define HAK_BASE_WORD_H

#include "base/attr.h"

HAK_INLINE unsigned hak_word_first(uint64_t word) { return (unsigned)__builtin_ctzll(word); }
HAK_INLINE unsigned hak_word_last(uint64_t word) { return 63u - (unsigned)__builtin_clzll(word); }
/* x86-64 has no popcnt at its baseline, and libgcc's is a call; after Hacker's Delight, 5-1 */
HAK_INLINE unsigned hak_word_count(uint64_t word) {
#if defined(__POPCNT__) || defined(__aarch64__)
    return (unsigned)__builtin_popcountll(word);
#else
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    return (unsigned)(((word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f)) * UINT64_C(0x0101010101010101) >> 56);
#endif
}

/* bits [first, first + count), count 0 to 64, first + count at most 64 */
HAK_INLINE uint64_t hak_word_mask(unsigned first, unsigned count) {
    return count == 0 ? 0 : (~UINT64_C(0) >> (64 - count)) << first;
}

/* the bits at which `count` (1 to 64) consecutive set bits begin; after Hacker's Delight, 6-3 */
HAK_INLINE uint64_t hak_word_runs(uint64_t word, unsigned count) {
    while (count > 1) {
        unsigned half = count >> 1;
        word &= word >> half;
        count -= half;
    }
    return word;
}

/* bits at multiples of `step`, a power of two from 1 to 64 */
HAK_INLINE uint64_t hak_word_multiples(unsigned step) {
    return step >= 64 ? 1 : ~UINT64_C(0) / ((UINT64_C(1) << step) - 1);
}

/* The `most` lowest bits of a word, or all if they are fewer; *count says how many. */
HAK_INLINE uint64_t hak_word_lowest(uint64_t word, unsigned most, uint32_t *count) {
    unsigned have = hak_word_count(word);
    *count = have < most ? have : most;
    if (have <= most) return word;
    uint64_t rest = word;
    if (most <= have - most) {
        while (most-- > 0) rest &= rest - 1;
        return word ^ rest;
    }
    for (unsigned over = have - most; over > 0; over--) rest ^= UINT64_C(1) << hak_word_last(rest);
    return rest;
}

HAK_INLINE size_t hak_round_up(size_t n, size_t power_of_two) { return (n + power_of_two - 1) & ~(power_of_two - 1); }
HAK_INLINE size_t hak_round_down(size_t n, size_t power_of_two) { return n & ~(power_of_two - 1); }

#endif
