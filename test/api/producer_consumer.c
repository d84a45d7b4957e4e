/* producer_consumer.c - blocks allocated by some threads and freed by others: contents, and bounded memory.
 *
 * Owns:    one ring of pointers per pair.
 * Threads: one producer and one consumer per ring; they meet in the ring's two counters.
 * ctest: secure
 */
#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RING_SLOTS = 1024 };

struct ring {
    _Atomic uint64_t written, read;
    void *blocks[RING_SLOTS];
    size_t sizes[RING_SLOTS];
    uint64_t count, seed;
    size_t size_max;
};

static void *produce(void *argument)
{
    struct ring *ring = (struct ring *)argument;
    struct random_state random = {ring->seed};
    for (uint64_t i = 0; i < ring->count; i++) {
        while (i - atomic_load_explicit(&ring->read, memory_order_acquire) == RING_SLOTS)
            sched_yield();
        size_t size = random_below(&random, ring->size_max) + 8;
        char *block = (char *)malloc(size);
        REQUIRE(block != NULL);
        size_t stamp = size < 64 ? size : 64;
        pattern_fill(block, 0, stamp, i);
        ring->blocks[i % RING_SLOTS] = block;
        ring->sizes[i % RING_SLOTS] = size;
        /* release: pairs with the acquire in consume(); publishes the slot and the block's bytes */
        atomic_store_explicit(&ring->written, i + 1, memory_order_release);
    }
    return NULL;
}

static void *consume(void *argument)
{
    struct ring *ring = (struct ring *)argument;
    for (uint64_t i = 0; i < ring->count; i++) {
        while (atomic_load_explicit(&ring->written, memory_order_acquire) <= i)
            sched_yield();
        void *block = ring->blocks[i % RING_SLOTS];
        size_t size = ring->sizes[i % RING_SLOTS], stamp = size < 64 ? size : 64;
        size_t at = pattern_check(block, 0, stamp, i);
        EXPECT_SAY(at == stamp, "block %llu of %zu bytes changed at %zu", (unsigned long long)i, size, at);
        /* release: pairs with the acquire in produce(); the slot may be written again */
        atomic_store_explicit(&ring->read, i + 1, memory_order_release);
        free(block);
    }
    return NULL;
}

/* `pairs` producers and consumers move `count` blocks each; live memory never exceeds the rings'. */
static void pairs_run(int pairs, uint64_t count, size_t size_max, long growth_kib_max)
{
    struct ring *rings[8];
    pthread_t producers[8], consumers[8];
    long before = resident_kib();
    for (int i = 0; i < pairs; i++) {
        rings[i] = (struct ring *)calloc(1, sizeof **rings);
        rings[i]->count = count;
        rings[i]->seed = (uint64_t)i + size_max;
        rings[i]->size_max = size_max;
        REQUIRE(pthread_create(&producers[i], NULL, produce, rings[i]) == 0);
        REQUIRE(pthread_create(&consumers[i], NULL, consume, rings[i]) == 0);
    }
    for (int i = 0; i < pairs; i++) {
        pthread_join(producers[i], NULL);
        pthread_join(consumers[i], NULL);
    }
    long growth = resident_kib() - before;
    EXPECT_SAY(!resident_is_known() || growth < growth_kib_max, "%d pairs, blocks to %zu bytes: grew by %ld KiB", pairs, size_max, growth);
    for (int i = 0; i < pairs; i++)
        free(rings[i]);
}

static void small_blocks(void) { pairs_run(1, 1000000, 120, 8 * 1024); }
static void mixed_blocks(void) { pairs_run(2, 300000, 2000, 24 * 1024); }
static void medium_blocks(void) { pairs_run(2, 100000, 30000, 120 * 1024); }
static void large_blocks(void) { pairs_run(1, 20000, 150000, 256 * 1024); }
static void many_pairs(void) { pairs_run(8, 60000, 500, 32 * 1024); }

/* The consumer allocates nothing ever, the producer frees nothing ever: one class, exact sizes. */
static void one_size_only(void)
{
    for (size_t size = 8; size <= 1016; size += 336)
        pairs_run(1, 300000, size, 8 * 1024);
}

int main(void)
{
    RUN(small_blocks);
    RUN(mixed_blocks);
    RUN(medium_blocks);
    RUN(large_blocks);
    RUN(many_pairs);
    RUN(one_size_only);
    return EXPECT_RESULT();
}
