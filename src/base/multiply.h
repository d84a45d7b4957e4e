/* multiply.h - products, for C and C++: which block of a slab an address belongs to, and where a block begins.
 *
 * Owns:      nothing.
 * Threads:   any.
 */
#ifndef HAK_BASE_MULTIPLY_H
#define HAK_BASE_MULTIPLY_H

#include "base/attr.h"

/* High and low half of a * *b. As gcc has it, both halves move once more, and *b is loaded for itself. */
HAK_INLINE uint64_t hak_multiply(uint64_t a, const uint64_t *b, uint64_t *low) {
#if defined(__x86_64__)
    uint64_t high;
    __asm__("mulq %3" : "=d"(high), "=a"(*low) : "1"(a), "m"(*b) : "cc");
    return high;
#else
    unsigned __int128 product = (unsigned __int128)a * *b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#endif
}

/* a * b, all below 2^32; into a's register, where gcc takes b's and copies it first. */
HAK_INLINE uint64_t hak_multiply_short(uint64_t a, uint64_t b) {
#if defined(__x86_64__)
    __asm__("imull %k1, %k0" : "+r"(a) : "r"(b) : "cc");
    return a;
#else
    return (uint32_t)a * (uint32_t)b;
#endif
}

#endif
