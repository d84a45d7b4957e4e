/* draw.h - random draws for Poisson samples by bytes, and what a sample weighs. Without libm.
 *
 * Owns:      nothing; the generator's state is the caller's.
 * Source:    splitmix64 (Steele, Lea, Flood, 2014). A geometric draw is a rounded exponential one: with E exponential,
 *            1 + floor(E / x) is geometric with p = 1 - exp(-x), exactly.
 */
#ifndef HAK_WATCH_DRAW_H
#define HAK_WATCH_DRAW_H

#include "base/attr.h"

HAK_INLINE uint64_t hak_draw_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Exponential with mean 1; above 0. */
double hak_draw_exponential(uint64_t *state);

/* Allocations of `bytes` each up to and with the next sample: 1 or more. */
uint64_t hak_draw_distance(uint64_t *state, uint64_t bytes, uint64_t rate_bytes);

/* Is one allocation of `bytes` a sample? */
bool hak_draw_hit(uint64_t *state, uint64_t bytes, uint64_t rate_bytes);

/* How many blocks of `bytes` a sample stands for: 1 / (1 - exp(-bytes / rate)). */
double hak_sample_weight(uint64_t bytes, uint64_t rate_bytes);

/* For tests: natural logarithm of x > 0, and 1 - exp(-x) for x >= 0; relative error below 1e-13. */
double hak_draw_log(double x);
double hak_draw_hit_chance(double x);

#endif
