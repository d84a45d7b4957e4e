/* multiply.h - a product of 128 bits, for C and C++: which block of a slab an address belongs to.
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

#endif
