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
/* In each byte, the set bits of that byte of the word and of all below it; after Hacker's Delight, 5-1. */
HAK_INLINE uint64_t hak_word_sums(uint64_t word) {
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    return ((word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f)) * UINT64_C(0x0101010101010101);
}
/* x86-64 has no popcnt at its baseline, and libgcc's is a call */
HAK_INLINE unsigned hak_word_count(uint64_t word) {
#if defined(__POPCNT__) || defined(__aarch64__)
    return (unsigned)__builtin_popcountll(word);
#else
    return (unsigned)(hak_word_sums(word) >> 56);
#endif
}

/* Without the bit `index` modulo 64. */
HAK_INLINE uint64_t hak_word_without(uint64_t word, uint64_t index) {
#if defined(__x86_64__)
    __asm__("btrq %1, %0" : "+r"(word) : "r"(index) : "cc"); /* gcc shifts a bit, and inverts it */
    return word;
#else
    return word & ~(UINT64_C(1) << (index & 63));
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

/* Bit 7 of each byte of `sums` (of up to 64) that is at least `least`; the lowest of them as a bit number. */
HAK_INLINE unsigned hak_word_sums_reach(uint64_t sums, unsigned least) {
    uint64_t tops = UINT64_C(0x8080808080808080);
    return hak_word_first(((sums | tops) - least * UINT64_C(0x0101010101010101)) & tops);
}

struct hak_word_part {
    uint64_t bits;
    uint64_t count;
};

/* The bit of rank `rank` (from 1 on, at most as many as are set) of a word with these hak_word_sums().
 * No branch and no loop, because visits meet every kind of word: first its byte, then the
 * bit in the byte; after Vigna, "Broadword implementation of rank/select queries", 2008. */
HAK_INLINE unsigned hak_word_ranked(uint64_t word, uint64_t sums, unsigned rank) {
    uint64_t ones = UINT64_C(0x0101010101010101);
    unsigned byte = hak_word_sums_reach(sums, rank) - 7; /* its first bit */
    rank -= (unsigned)(sums << 8 >> byte & 0xff);
    uint64_t spread = (word >> byte & 0xff) * ones & UINT64_C(0x8040201008040201); /* bit j in byte j */
    uint64_t set = ((spread + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7 & ones) * ones;
    return byte + hak_word_sums_reach(set, rank) / 8;
}

/* The `most` (at least 1) lowest bits of a word that is not 0, or all if they are fewer, and how many they are. */
HAK_INLINE struct hak_word_part hak_word_lowest(uint64_t word, unsigned most) {
    uint64_t sums = hak_word_sums(word);
    unsigned have = (unsigned)(sums >> 56), wanted = have < most ? have : most;
    return (struct hak_word_part){ word & ~UINT64_C(0) >> (63 - hak_word_ranked(word, sums, wanted)), wanted };
}

/* Is bit `index` modulo 64 set? gcc takes cl for the shift, and moves what is there. */
HAK_INLINE bool hak_word_has(uint64_t word, uint64_t index) {
#if defined(__x86_64__)
    bool has;
    __asm__("btq %2, %1" : "=@ccc"(has) : "r"(word), "r"(index));
    return has;
#else
    return word >> (index & 63) & 1;
#endif
}

HAK_INLINE size_t hak_round_up(size_t n, size_t power_of_two) { return (n + power_of_two - 1) & ~(power_of_two - 1); }
HAK_INLINE size_t hak_round_down(size_t n, size_t power_of_two) { return n & ~(power_of_two - 1); }

#endif
