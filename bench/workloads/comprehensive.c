/* comprehensive.c - the plain patterns, one after the other: small classes one by one, last in first out, first in
 * first out, random order, two sizes interleaved.
 *
 * Arguments: pattern all (all, each, lifo, fifo, random, interleaved), rounds 200, seed 12345.
 * each:        100 blocks of one size are allocated and freed, for each of twenty sizes from 16 to 1,024.
 * lifo, fifo, random: 1,000 blocks of 16 to 1,024 bytes are allocated, and freed in that order.
 * interleaved: 1,000 blocks of two sizes by turns; those of the one size are freed and a third size is put in
 *              their places, then all are freed.
 * Each pattern does 2,000 allocations a round and is told apart in `parts`.
 */
#include "work.h"

enum { BLOCKS = 1000, SIZES = 20, EACH = 100, ORDERS = 16, ALLOCS_A_ROUND = 2000 };
struct held { unsigned char *block; uint32_t bytes; };
static struct held held[BLOCKS];
static uint32_t order[ORDERS][BLOCKS];
static uint64_t random_state, digest;

static void held_make(struct held *one, uint32_t bytes) {
    one->bytes = bytes;
    one->block = work_alloc(bytes, (unsigned char)(bytes ^ bytes >> 3));
    digest += bytes;
}
static void held_free(struct held *one) {
    work_free(one->block, one->bytes, (unsigned char)(one->bytes ^ one->bytes >> 3));
}
static uint32_t small_size(void) { return 16 + (uint32_t)work_below(&random_state, 1009); }

static void each_run(void) {
    static const uint16_t size[SIZES] = { 16,  32,  48,  64,  80,  96,  112, 128, 160, 192,
                                          224, 256, 320, 384, 448, 512, 640, 768, 896, 1024 };
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned k = 0; k < EACH; k++) held_make(&held[k], size[i]);
        for (unsigned k = 0; k < EACH; k++) held_free(&held[k]);
    }
}
static void lifo_run(void) {
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < BLOCKS; i++) held_make(&held[i], small_size());
        for (unsigned i = BLOCKS; i-- > 0;) held_free(&held[i]);
    }
}
static void fifo_run(void) {
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < BLOCKS; i++) held_make(&held[i], small_size());
        for (unsigned i = 0; i < BLOCKS; i++) held_free(&held[i]);
    }
}
static void random_run(void) {
    for (unsigned turn = 0; turn < 2; turn++) {
        const uint32_t *places = order[work_below(&random_state, ORDERS)];
        for (unsigned i = 0; i < BLOCKS; i++) held_make(&held[i], small_size());
        for (unsigned i = 0; i < BLOCKS; i++) held_free(&held[places[i]]);
    }
}
static void interleaved_run(void) {
    uint32_t first = small_size(), second = small_size(), third = small_size();
    for (unsigned i = 0; i < BLOCKS; i++) held_make(&held[i], i % 2 ? first : second);
    for (unsigned i = 0; i < BLOCKS; i += 2) held_free(&held[i]);
    for (unsigned i = 0; i < BLOCKS; i += 2) held_make(&held[i], third);
    for (unsigned i = 1; i < BLOCKS; i += 2) held_free(&held[i]);
    for (unsigned i = 1; i < BLOCKS; i += 2) held_make(&held[i], second);
    for (unsigned i = 0; i < BLOCKS; i++) held_free(&held[i]);
}

int main(int argc, char **argv) {
    static const char *const word[] = { "all", "each", "lifo", "fifo", "random", "interleaved" };
    static void (*const run[])(void) = { NULL, each_run, lifo_run, fifo_run, random_run, interleaved_run };
    unsigned chosen = work_choice(argc, argv, 1, "pattern", word, 6);
    uint64_t round_count = work_arg(argc, argv, 2, "rounds", 200, 1, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 3, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 3);
    random_state = seed;
    for (unsigned i = 0; i < ORDERS; i++) work_shuffle(order[i], BLOCKS, &random_state);
    struct work_span span = { 0, 0 }, part[6];
    uint64_t pattern_count = 0;
    for (unsigned pattern = 1; pattern < 6; pattern++) {
        if (chosen && chosen != pattern) continue;
        part[pattern] = work_start();
        for (uint64_t round = 0; round < round_count; round++) run[pattern]();
        work_stop(&part[pattern]);
        span.wall_ns += part[pattern].wall_ns;
        span.cpu_ns += part[pattern].cpu_ns;
        pattern_count++;
    }
    work_begin("comprehensive", argc, argv);
    work_number("seed", seed);
    work_measured(pattern_count * round_count * ALLOCS_A_ROUND, span);
    work_parts_begin();
    for (unsigned pattern = 1; pattern < 6; pattern++)
        if (!chosen || chosen == pattern) work_part(word[pattern], round_count * ALLOCS_A_ROUND, part[pattern].cpu_ns);
    work_parts_end();
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
