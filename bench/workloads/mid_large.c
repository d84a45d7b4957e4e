/* mid_large.c - blocks of 2 to 32 KiB, several threads.
 *
 * Arguments: threads 2, rounds a thread 500000, slots a thread 256, seed 12345.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };
static uint64_t round_count, slot_count, seed;

static void *thread_run(void *argument) {
    uint64_t random = seed + (uintptr_t)argument * 7919;
    struct held *slot = work_table(slot_count * sizeof *slot);
    for (uint64_t round = 0; round < round_count; round++) {
        struct held *one = &slot[work_below(&random, slot_count)];
        if (one->block) work_free(one->block, one->bytes, (unsigned char)one->bytes);
        one->bytes = (uint32_t)(2048 + work_below(&random, 30721));
        one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
    }
    for (uint64_t i = 0; i < slot_count; i++)
        if (slot[i].block) work_free(slot[i].block, slot[i].bytes, (unsigned char)slot[i].bytes);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 2, 1, 256);
    round_count = work_arg(argc, argv, 2, "rounds", 500000, 1, UINT32_MAX);
    slot_count = work_arg(argc, argv, 3, "slots", 256, 1, 1u << 20);
    seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 4);
    pthread_t thread[256];
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(thread_run, (void *)(uintptr_t)i);
    for (uint64_t i = 0; i < thread_count; i++) work_join(thread[i]);
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("mid_large", argc, argv);
    work_number("seed", seed);
    work_number("ops", thread_count * round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
