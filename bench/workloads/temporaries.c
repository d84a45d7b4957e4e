/* temporaries.c - arithmetic on arrays, each result a new array: what numerical scripts do.
 *
 * Arguments: expressions 300, smallest KiB of an array 64, largest 8192, seed 12345.
 * An expression takes three arrays of one length, and computes (a + b) * c - a, each step into a new array; the
 * inputs of a step that nobody needs any more are freed after it. An operation is one array. Values are checked.
 */
#include "work.h"

static uint64_t op_count;

static double *array_make(size_t count) {
    double *array = malloc(count * sizeof *array);
    work_aligned(array, count * sizeof *array);
    op_count++;
    return array;
}
static double *array_filled(size_t count, double first) {
    double *array = array_make(count);
    for (size_t i = 0; i < count; i++) array[i] = first + (double)(i & 1023);
    return array;
}

int main(int argc, char **argv) {
    uint64_t expression_count = work_arg(argc, argv, 1, "expressions", 300, 1, UINT32_MAX);
    uint64_t kib_min = work_arg(argc, argv, 2, "smallest", 64, 1, 1u << 20);
    uint64_t kib_max = work_arg(argc, argv, 3, "largest", kib_min > 8192 ? kib_min : 8192, kib_min, 1u << 20);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), random = seed, digest = 0;
    work_args_end(argc, argv, 4);
    struct work_span span = work_start();
    for (uint64_t i = 0; i < expression_count; i++) {
        /* small ones more often, so that each size gets about as many bytes */
        uint64_t kib = kib_min + work_skewed(&random, work_skewed(&random, kib_max - kib_min + 1) + 1);
        size_t count = (kib << 10) / sizeof(double) - work_below(&random, 64);
        double *a = array_filled(count, (double)(i % 7)), *b = array_filled(count, 1), *c = array_filled(count, 2);
        double *sum = array_make(count);
        for (size_t k = 0; k < count; k++) sum[k] = a[k] + b[k];
        free(b);
        double *product = array_make(count);
        for (size_t k = 0; k < count; k++) product[k] = sum[k] * c[k];
        free(sum);
        free(c);
        double *result = array_make(count);
        for (size_t k = 0; k < count; k++) result[k] = product[k] - a[k];
        free(product);
        free(a);
        for (size_t k = count / 2; k < count; k += 509) {
            double n = (double)(k & 1023), x = (double)(i % 7) + n;
            if (result[k] != (x + 1 + n) * (2 + n) - x) work_die(1, "an array has changed at %zu", k);
            digest += (uint64_t)result[k];
        }
        free(result);
    }
    work_stop(&span);
    work_begin("temporaries", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
