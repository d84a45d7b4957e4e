/* every_size.c - one block of every size from 32 KiB to 64 MiB, written: are there cliffs?
 *
 * Arguments: smallest KiB 32, largest KiB 65536, steps a doubling 4, blocks live 1, spread per cent 0,
 *            MB written at each size 64, write whole (whole, pages), seed 12345.
 * At each size, blocks of it are allocated, written and freed until the given amount is done, at least four times;
 * with several live, the oldest is replaced, and each size is up to `spread` per cent smaller or larger. A size's
 * time per block is in `parts`. Every block is checked at its end: first and last byte, and one of each 64 KiB.
 */
#include "work.h"

enum { LIVE_MAX = 64, SIZES_MAX = 1024 };
struct held { unsigned char *block; size_t bytes; unsigned char tag; };
struct size { size_t bytes; uint64_t block_count; struct work_span span; };
static struct held held[LIVE_MAX];
static struct size size[SIZES_MAX];
static uint64_t random_state, live_count, spread, digest;
static unsigned write_way;

static void held_free(struct held *one) {
    if (!one->block) return;
    for (size_t at = 0; at < one->bytes; at += 65536)
        if (one->block[at] != one->tag) work_die(1, "block %p of %zu bytes has changed", one->block, one->bytes);
    work_free(one->block, one->bytes, one->tag);
    one->block = NULL;
}

static void held_make(struct held *one, size_t bytes, unsigned char tag) {
    size_t slack = bytes / 100 * spread;
    *one = (struct held){ NULL, bytes - slack + (size_t)work_below(&random_state, 2 * slack + 1), tag };
    one->block = work_alloc(one->bytes, tag);
    if (write_way == 0)
        memset(one->block, tag, one->bytes);
    else
        for (size_t at = 0; at < one->bytes; at += 4096) ((volatile unsigned char *)one->block)[at] = tag;
    digest += one->bytes;
}

static void size_run(struct size *one) {
    one->span = work_start();
    for (uint64_t i = 0; i < one->block_count; i++) {
        held_free(&held[i % live_count]);
        held_make(&held[i % live_count], one->bytes, (unsigned char)(i + 1));
    }
    for (uint64_t i = 0; i < live_count; i++) held_free(&held[i]);
    work_stop(&one->span);
}

int main(int argc, char **argv) {
    static const char *const word[] = { "whole", "pages" };
    uint64_t kib_min = work_arg(argc, argv, 1, "smallest", 32, 1, 1u << 22);
    uint64_t kib_max = work_arg(argc, argv, 2, "largest", kib_min > 65536 ? kib_min : 65536, kib_min, 1u << 22);
    uint64_t step_count = work_arg(argc, argv, 3, "steps", 4, 1, 16);
    live_count = work_arg(argc, argv, 4, "live", 1, 1, LIVE_MAX);
    spread = work_arg(argc, argv, 5, "spread", 0, 0, 50);
    uint64_t budget_bytes = work_arg(argc, argv, 6, "mb", 64, 1, 1u << 20) * 1000000u;
    write_way = work_choice(argc, argv, 7, "write", word, 2);
    uint64_t seed = work_arg(argc, argv, 8, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 8);
    random_state = seed;
    uint64_t size_count = 0, op_count = 0, block_min = live_count > 4 ? 2 * live_count : 4;
    struct work_span span = { 0, 0 };
    for (uint64_t base = kib_min << 10; base <= kib_max << 10; base *= 2)
        for (uint64_t step = 0; step < step_count && size_count < SIZES_MAX; step++) {
            struct size *one = &size[size_count];
            one->bytes = base + base * step / step_count;
            if (one->bytes > kib_max << 10) break;
            one->block_count = budget_bytes / one->bytes > block_min ? budget_bytes / one->bytes : block_min;
            size_run(one);
            span.wall_ns += one->span.wall_ns;
            span.cpu_ns += one->span.cpu_ns;
            op_count += one->block_count;
            size_count++;
        }
    work_begin("every_size", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(digest);
    work_parts_begin();
    for (uint64_t i = 0; i < size_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu KiB", size[i].bytes >> 10);
        work_part(name, size[i].block_count, size[i].span.cpu_ns);
    }
    work_parts_end();
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
