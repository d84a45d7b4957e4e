/* page_return.c - pages go back to the kernel from the middle of slabs while other threads use the blocks.
 *
 * Owns:    each worker's own blocks; a lowered purge delay.
 * Threads: three workers rise to a peak, keep one block in fifty, fall, and rise again; one collects without
 *          pause (claims slabs of the others); every kept block is verified after every fall.
 * ctest: secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WORKERS = 3, BLOCKS = 30000 };
static double end_seconds;
static uint64_t seed;
static atomic_bool stop;
static atomic_ullong falls, collections;

static void *work(void *argument)
{
    struct random_state random = {seed + (uintptr_t)argument};
    void **blocks = (void **)calloc(BLOCKS, sizeof *blocks);
    uint64_t round = 0;
    while (clock_seconds() < end_seconds) {
        size_t largest = (size_t)64 << random_below(&random, 7);
        for (int i = 0; i < BLOCKS; i++)
            if (blocks[i] == NULL) {
                size_t bytes = sizeof(struct stamp) + random_below(&random, largest);
                blocks[i] = malloc(bytes);
                REQUIRE(blocks[i] != NULL);
                block_stamp(blocks[i], bytes, round * BLOCKS + (uint64_t)i);
            }
        for (int i = 0; i < BLOCKS; i++)
            if (random_below(&random, 50) != 0) {
                block_free(blocks[i]);
                blocks[i] = NULL;
            }
        for (int i = 0; i < BLOCKS; i++)
            if (blocks[i] != NULL)
                block_verify(blocks[i], sizeof(struct stamp));
        atomic_fetch_add(&falls, 1);
        round++;
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i] != NULL)
            block_free(blocks[i]);
    free(blocks);
    return NULL;
}

static void *collect(void *unused)
{
    while (!atomic_load(&stop)) {
        hak_collect();
        atomic_fetch_add(&collections, 1);
        usleep(500);
    }
    return unused;
}

int main(void)
{
    seed = random_seed("page_return");
    EXPECT(hak_option_set("purge_delay_ms", "10") == 0);
    end_seconds = clock_seconds() + stress_seconds(6);
    pthread_t workers[WORKERS], collector;
    REQUIRE(pthread_create(&collector, NULL, collect, NULL) == 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        REQUIRE(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    atomic_store(&stop, true);
    pthread_join(collector, NULL);
    printf("page_return: %llu falls, %llu collections\n", (unsigned long long)falls, (unsigned long long)collections);
    return EXPECT_RESULT();
}
