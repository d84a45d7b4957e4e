/* draw.c - see draw.h. */
#include "watch/draw.h"

#define LN_2 0.69314718055994530942

double hak_draw_log(double x) {
    union {
        double value;
        uint64_t bits;
    } parts = { x };
    int exponent = (int)(parts.bits >> 52) - 1023;
    parts.bits = (parts.bits & (~UINT64_C(0) >> 12)) | UINT64_C(1023) << 52; /* 1 to 2 */
    if (parts.value > 1.41421356237309504880) {
        parts.value *= 0.5;
        exponent++;
    }
    double s = (parts.value - 1) / (parts.value + 1), square = s * s, sum = 0; /* at most 0.172 */
    for (int n = 17; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
    return exponent * LN_2 + 2 * s * (1 + sum);
}

double hak_draw_hit_chance(double x) {
    if (x >= 45) return 1; /* exp(-45) is below a double's last bit */
    if (x < 0.5) {         /* 1 - exp(-x) = x - x^2/2! + x^3/3! ... */
        double sum = 0;
        for (int n = 16; n >= 2; n--) sum = (1 - sum) * x / n;
        return x * (1 - sum);
    }
    int halves = 0;
    while (x >= 0.5) { /* exp(-x) = exp(-x / 2^n)^(2^n) */
        x *= 0.5;
        halves++;
    }
    double rest = 1 - hak_draw_hit_chance(x);
    while (halves-- > 0) rest *= rest;
    return 1 - rest;
}

double hak_draw_exponential(uint64_t *state) {
    double uniform = (double)((hak_draw_bits(state) >> 11) + 1) * 0x1p-53; /* above 0, up to 1 */
    double drawn = -hak_draw_log(uniform);
    return drawn > 0 ? drawn : 0x1p-53;
}

uint64_t hak_draw_distance(uint64_t *state, uint64_t bytes, uint64_t rate_bytes) {
    double blocks = hak_draw_exponential(state) * (double)rate_bytes / (double)(bytes ? bytes : 1);
    return blocks < 0x1p60 ? 1 + (uint64_t)blocks : UINT64_C(1) << 60;
}

bool hak_draw_hit(uint64_t *state, uint64_t bytes, uint64_t rate_bytes) {
    return hak_draw_exponential(state) * (double)rate_bytes < (double)bytes;
}

double hak_sample_weight(uint64_t bytes, uint64_t rate_bytes) {
    return 1 / hak_draw_hit_chance((double)(bytes ? bytes : 1) / (double)rate_bytes);
}
