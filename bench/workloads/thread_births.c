/* thread_births.c - threads are born and die by the thousand.
 *
 * Arguments: threads 4000, alive at once 4, blocks a thread 200, seed 12345.
 * Each thread allocates its blocks (16 to 1,024 bytes, one in 100 of 32 KiB), frees half of them, and ends; the
 * main thread frees the other half afterwards. An operation is one thread.
 */
#include "work.h"

enum { ALIVE_MAX = 256 };
struct held { unsigned char *block; uint32_t bytes; };
struct life {
    pthread_t thread;
    struct held *held;
    uint64_t random, digest;
    bool is_alive;
};
static uint64_t block_count;

static void *life_run(void *argument) {
    struct life *life = argument;
    for (uint64_t i = 0; i < block_count; i++) {
        struct held *one = &life->held[i];
        one->bytes = work_below(&life->random, 100) ? 16 + (uint32_t)work_below(&life->random, 1009) : 32768;
        one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
        life->digest += one->bytes;
    }
    for (uint64_t i = 0; i < block_count; i += 2)
        work_free(life->held[i].block, life->held[i].bytes, (unsigned char)life->held[i].bytes);
    return NULL;
}

static void life_end(struct life *life) {
    if (!life->is_alive) return;
    work_join(life->thread);
    for (uint64_t i = 1; i < block_count; i += 2)
        work_free(life->held[i].block, life->held[i].bytes, (unsigned char)life->held[i].bytes);
    life->is_alive = false;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 4000, 1, 1u << 30);
    uint64_t alive_count = work_arg(argc, argv, 2, "alive", 4, 1, ALIVE_MAX);
    block_count = work_arg(argc, argv, 3, "blocks", 200, 1, 1u << 20);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), digest = 0;
    work_args_end(argc, argv, 4);
    struct life *life = work_table(alive_count * sizeof *life);
    for (uint64_t i = 0; i < alive_count; i++) life[i].held = work_table(block_count * sizeof *life[i].held);
    struct work_span span = work_start();
    for (uint64_t i = 0; i < thread_count; i++) {
        struct life *one = &life[i % alive_count];
        life_end(one);
        one->random = seed + i * 7919;
        one->is_alive = true;
        one->thread = work_thread(life_run, one);
    }
    for (uint64_t i = 0; i < alive_count; i++) {
        life_end(&life[i]);
        digest += life[i].digest;
    }
    work_stop(&span);
    work_begin("thread_births", argc, argv);
    work_number("seed", seed);
    work_measured(thread_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
