/* exchange.c - threads allocate, keep some blocks, and pass others on through shared places, where another thread
 * finds and frees them.
 *
 * Arguments: threads 4, rounds a thread 500000, own slots a thread 256, shared places 1024, shared per cent 25,
 *            seed 12345.
 * Sizes: 16 to 2,047 bytes, each doubling equally often; one block in 64 is of 2 to 32 KiB. A shared place is
 * changed by one atomic exchange: who puts a block in takes out what was there. Which thread frees a block is chance,
 * how many blocks there are is not; a block carries its own size and tag, and the sum of all sizes freed is checked.
 */
#include "work.h"

enum { THREADS_MAX = 1024 };
struct block { uint32_t bytes; unsigned char tag; };
static _Atomic(struct block *) *shared;
static uint64_t round_count, own_count, shared_count, shared_percent, seed;
static atomic_ulong digest, freed;
static pthread_barrier_t start;

static struct block *block_make(uint64_t *random) {
    size_t bytes = work_below(random, 64) ? work_log_size(random, 4, 11) : work_log_size(random, 11, 15);
    struct block *block = work_alloc(bytes, 0);
    *block = (struct block){ (uint32_t)bytes, (unsigned char)(bytes ^ bytes >> 8) };
    ((volatile unsigned char *)block)[bytes - 1] = block->tag;
    return block;
}
static uint64_t block_free(struct block *block) {
    uint64_t bytes = block->bytes;
    if (block->tag != (unsigned char)(bytes ^ bytes >> 8) || ((volatile unsigned char *)block)[bytes - 1] != block->tag)
        work_die(1, "block %p has changed", (void *)block);
    free(block);
    return bytes;
}

static void *thread_run(void *argument) {
    uint64_t random = seed + (uintptr_t)argument * 7919, made_bytes = 0, freed_bytes = 0;
    struct block **own = work_table(own_count * sizeof *own);
    pthread_barrier_wait(&start);
    for (uint64_t round = 0; round < round_count; round++) {
        struct block *block = block_make(&random), *old;
        made_bytes += block->bytes;
        if (work_below(&random, 100) < shared_percent) {
            /* acquire, release: the block's header goes with it */
            old = atomic_exchange_explicit(&shared[work_below(&random, shared_count)], block, memory_order_acq_rel);
        } else {
            uint64_t slot = work_below(&random, own_count);
            old = own[slot];
            own[slot] = block;
        }
        if (old) freed_bytes += block_free(old);
    }
    for (uint64_t i = 0; i < own_count; i++)
        if (own[i]) freed_bytes += block_free(own[i]);
    work_table_free(own, own_count * sizeof *own);
    atomic_fetch_add(&digest, made_bytes);
    atomic_fetch_add(&freed, freed_bytes);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 4, 1, THREADS_MAX);
    round_count = work_arg(argc, argv, 2, "rounds", 500000, 1, UINT32_MAX);
    own_count = work_arg(argc, argv, 3, "slots", 256, 1, 1u << 20);
    shared_count = work_arg(argc, argv, 4, "shared", 1024, 1, 1u << 20);
    shared_percent = work_arg(argc, argv, 5, "percent", 25, 0, 100);
    seed = work_arg(argc, argv, 6, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 6);
    shared = work_table(shared_count * sizeof *shared);
    pthread_barrier_init(&start, NULL, (unsigned)thread_count + 1);
    pthread_t *thread = work_table(thread_count * sizeof *thread);
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(thread_run, (void *)(uintptr_t)i);
    struct work_span span = work_start(); /* nobody starts before us */
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < thread_count; i++) work_join(thread[i]);
    work_stop(&span);
    uint64_t left_bytes = 0;
    for (uint64_t i = 0; i < shared_count; i++)
        if (shared[i]) left_bytes += block_free(shared[i]);
    if (atomic_load(&freed) + left_bytes != atomic_load(&digest)) work_die(1, "a block was lost, or freed twice");
    work_begin("exchange", argc, argv);
    work_number("seed", seed);
    work_measured(thread_count * round_count, span);
    work_check(atomic_load(&digest));
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
