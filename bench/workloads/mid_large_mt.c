/* mid_large_mt.c - blocks of 2 to 32 KiB, or larger ones, by several threads, each with slots of its own.
 *
 * Arguments: threads 2, rounds a thread 500000, slots a thread 256, smallest 2048, largest 32768, seed 12345.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };
static uint64_t round_count, slot_count, bytes_min, bytes_max, seed;
static atomic_ulong digest;

static void *thread_run(void *argument) {
    uint64_t random = seed + (uintptr_t)argument * 7919;
    struct held *slot = work_table(slot_count * sizeof *slot);
    for (uint64_t round = 0; round < round_count; round++) {
        struct held *one = &slot[work_below(&random, slot_count)];
        if (one->block) work_free(one->block, one->bytes, (unsigned char)one->bytes);
        one->bytes = (uint32_t)(bytes_min + work_below(&random, bytes_max - bytes_min + 1));
        one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
    }
    for (uint64_t i = 0; i < slot_count; i++)
        if (slot[i].block) work_free(slot[i].block, slot[i].bytes, (unsigned char)slot[i].bytes);
    atomic_fetch_add(&digest, random);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 2, 1, 256);
    round_count = work_arg(argc, argv, 2, "rounds", 500000, 1, UINT32_MAX);
    slot_count = work_arg(argc, argv, 3, "slots", 256, 1, 1u << 20);
    bytes_min = work_arg(argc, argv, 4, "smallest", 2048, 1, 1u << 26);
    bytes_max = work_arg(argc, argv, 5, "largest", bytes_min > 32768 ? bytes_min : 32768, bytes_min, 1u << 26);
    seed = work_arg(argc, argv, 6, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 6);
    pthread_t thread[256];
    struct work_span span = work_start();
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(thread_run, (void *)(uintptr_t)i);
    for (uint64_t i = 0; i < thread_count; i++) work_join(thread[i]);
    work_stop(&span);
    work_begin("mid_large_mt", argc, argv);
    work_number("seed", seed);
    work_measured(thread_count * round_count, span);
    work_check(atomic_load(&digest));
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
