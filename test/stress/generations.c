/* generations.c - threads are born, inherit blocks from dead ones, leave blocks behind, and die.
 *
 * Owns:    a table of slots, as strangers.c; a bound on living threads.
 * Threads: each lives for a random number of operations and starts its successor before it ends; so heaps
 *          die, are adopted and freed to all the time. Some threads only free, some only allocate.
 * ctest: secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LINES = 12, SLOTS = 6000 };
static _Atomic(void *) slots[SLOTS];
static double end_seconds;
static uint64_t seed;
static atomic_ullong births, live_lines;

static void *live(void *argument)
{
    uint64_t self = (uintptr_t)argument;
    struct random_state random = {seed ^ self * 0x9e3779b97f4a7c15u};
    uint64_t kind = random_next(&random) % 4;
    size_t steps = random_below(&random, random_below(&random, 8) == 0 ? 20000 : 600);
    for (size_t step = 0; step < steps; step++) {
        size_t i = random_below(&random, SLOTS);
        void *block = kind == 0 ? NULL : block_make(&random, self * 65537 + step);
        if (kind == 1) { /* only allocates: never frees what was there */
            void *none = NULL;
            if (!atomic_compare_exchange_strong(&slots[i], &none, block)) {
                i = random_below(&random, SLOTS);
                none = NULL;
                if (!atomic_compare_exchange_strong(&slots[i], &none, block))
                    block_free(block);
            }
            continue;
        }
        void *old = atomic_exchange(&slots[i], block);
        if (old != NULL)
            block_free(old);
    }
    atomic_fetch_add(&births, 1);
    if (clock_seconds() < end_seconds) {
        pthread_t successor;
        while (pthread_create(&successor, NULL, live, (void *)(uintptr_t)(self * 31 + 1 + random_below(&random, 1u << 30))) != 0)
            sched_yield();
        pthread_detach(successor);
    } else {
        atomic_fetch_sub(&live_lines, 1);
    }
    return NULL;
}

int main(void)
{
    seed = random_seed("generations");
    struct random_state options = {seed};
    options_choose(&options);
    end_seconds = clock_seconds() + stress_seconds(6);
    atomic_store(&live_lines, LINES);
    for (uintptr_t i = 0; i < LINES; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, live, (void *)(i + 1)) == 0);
        pthread_detach(thread);
    }
    double deadline = end_seconds + 60;
    while (atomic_load(&live_lines) != 0 && clock_seconds() < deadline)
        usleep(1000);
    EXPECT_SAY(live_lines == 0, "%llu lines never ended", (unsigned long long)live_lines);
    for (int i = 0; i < SLOTS; i++) {
        void *block = atomic_exchange(&slots[i], NULL);
        if (block != NULL)
            block_free(block);
    }
    printf("generations: %llu threads lived\n", (unsigned long long)births);
    return EXPECT_RESULT();
}
