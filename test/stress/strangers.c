/* strangers.c - eight threads share one table of blocks: most frees are of another thread's blocks.
 *
 * Owns:    a table of slots; a slot is exchanged atomically, so that each block has one holder at a time.
 * Threads: all do the same; every free, verify and realloc meets a block that any thread has made.
 * ctest: secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, SLOTS = 4096 };
static _Atomic(void *) slots[SLOTS];
static double end_seconds;
static uint64_t seed;
static atomic_ullong operations;

static void *work(void *argument)
{
    uint64_t self = (uintptr_t)argument;
    struct random_state random = {seed + self};
    uint64_t count = 0;
    while ((count & 1023) != 0 || clock_seconds() < end_seconds) {
        size_t i = random_below(&random, SLOTS);
        void *block = NULL;
        switch (random_next(&random) & 7) {
        case 0:
            break; /* only free */
        case 1:
            if ((block = atomic_exchange(&slots[i], NULL)) != NULL)
                block = block_resize(&random, block);
            break;
        default:
            block = block_make(&random, self * 1000003 + count);
        }
        void *old = atomic_exchange(&slots[i], block);
        if (old != NULL)
            block_free(old);
        count++;
    }
    atomic_fetch_add(&operations, count);
    return NULL;
}

int main(void)
{
    seed = random_seed("strangers");
    struct random_state options = {seed};
    options_choose(&options);
    end_seconds = clock_seconds() + stress_seconds(6);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] != NULL)
            block_free(slots[i]);
    printf("strangers: %llu operations\n", (unsigned long long)operations);
    return EXPECT_RESULT();
}
