/* draw.c - the draws of Poisson samples: against libm, and against their distributions. */
#include "watch/draw.h"

#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t state;

static void logarithm_and_chance_are_libms(void **unused) {
    (void)unused;
    for (double x = 1e-17; x < 1e17; x *= 1.37) {
        double mine = hak_draw_log(x), right = log(x);
        assert_true(fabs(mine - right) <= 1e-13 * fmax(1, fabs(right)));
    }
    for (double x = 1e-12; x < 100; x *= 1.11) {
        double mine = hak_draw_hit_chance(x), right = -expm1(-x);
        assert_true(fabs(mine - right) <= 1e-13 * right);
    }
    assert_true(hak_sample_weight(1 << 20, 64) == 1);
}

/* Mean and second moment of a geometric distribution, and its share of ones, within 4 standard errors. */
static void distances_are_geometric(void **unused) {
    (void)unused;
    static const uint64_t bytes[] = { 16, 64, 1024, 32768, 262144, 4194304 };
    enum { RATE = 524288, DRAWS = 200000 };
    for (unsigned i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        double p = -expm1(-(double)bytes[i] / RATE), sum = 0, ones = 0;
        for (unsigned n = 0; n < DRAWS; n++) {
            double k = (double)hak_draw_distance(&state, bytes[i], RATE);
            assert_true(k >= 1);
            sum += k;
            ones += k == 1;
        }
        double deviation = sqrt((1 - p) / (p * p) / DRAWS);
        assert_true(fabs(sum / DRAWS - 1 / p) <= 4 * deviation + 1e-9);
        assert_true(fabs(ones / DRAWS - p) <= 4 * sqrt(p * (1 - p) / DRAWS) + 1e-9);
        assert_true(fabs(hak_sample_weight(bytes[i], RATE) - 1 / p) < 1e-9 / p);
    }
}

/* One by one (large blocks) and by distance (classes) are the same process: the same share of hits. */
static void hits_are_as_many_as_distances_say(void **unused) {
    (void)unused;
    enum { RATE = 524288, BYTES = 65536, DRAWS = 200000 };
    double p = -expm1(-(double)BYTES / RATE), hits = 0;
    for (unsigned n = 0; n < DRAWS; n++) hits += hak_draw_hit(&state, BYTES, RATE);
    assert_true(fabs(hits / DRAWS - p) <= 4 * sqrt(p * (1 - p) / DRAWS));
}

/* sum of weight * bytes over the samples of many allocations is what was allocated: no matter which sizes mix. */
static void weights_make_up_for_what_is_not_sampled(void **unused) {
    (void)unused;
    enum { RATE = 65536 };
    double exact = 0, estimate = 0, variance = 0;
    uint64_t sizes = 1;
    for (unsigned n = 0; n < 500000; n++) {
        double bytes = (double)(16u << hak_draw_bits(&sizes) % 16), weight = hak_sample_weight((uint64_t)bytes, RATE);
        exact += bytes;
        variance += (weight - 1) * bytes * bytes;
        if (hak_draw_hit(&state, (uint64_t)bytes, RATE)) estimate += weight * bytes;
    }
    assert_true(fabs(estimate - exact) <= 4 * sqrt(variance));
}

int main(void) {
    state = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    printf("seed %llu\n", (unsigned long long)state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithm_and_chance_are_libms),
        cmocka_unit_test(distances_are_geometric),
        cmocka_unit_test(hits_are_as_many_as_distances_say),
        cmocka_unit_test(weights_make_up_for_what_is_not_sampled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
