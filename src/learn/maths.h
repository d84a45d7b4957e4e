/* maths.h - the two functions that the statistics need; nothing of libm is linked.
 *
 * Owns:      nothing; pure functions. Errors: below 1e-12 of the result (test/unit/tournament.c).
 */
#ifndef HAK_LEARN_MATHS_H
#define HAK_LEARN_MATHS_H

#include "base/attr.h"

#define HAK_LN2 0.693147180559945309417

/* Of a positive, finite, normal number: the exponent, and for the rest m in [1/sqrt 2, sqrt 2) the series of
 * 2 atanh((m - 1) / (m + 1)). */
HAK_INLINE double hak_ln(double x) {
    union { double number; uint64_t bits; } u = { x };
    int exponent = (int)(u.bits >> 52 & 0x7ff) - 1023;
    u.bits = (u.bits & 0x000fffffffffffff) | UINT64_C(1023) << 52;
    if (u.number > 1.41421356237309504880) u.number /= 2, exponent++;
    double z = (u.number - 1) / (u.number + 1), square = z * z, sum = 0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return exponent * HAK_LN2 + 2 * z * sum;
}

HAK_INLINE double hak_sqrt(double x) {
#if defined(__x86_64__) || defined(__aarch64__)
    return __builtin_sqrt(x); /* one instruction, with -fno-math-errno */
#endif
}

HAK_INLINE double hak_abs(double x) { return x < 0 ? -x : x; }

#endif
