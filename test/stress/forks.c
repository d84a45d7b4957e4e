/* forks.c - a process with busy threads forks and forks; each child verifies everything and works on.
 *
 * Owns:    a table of slots, as strangers.c.
 * Threads: four workers; the main thread forks. A child holds what the workers had not in hand at that
 *          moment; it verifies and frees all of it, allocates, starts threads, and ends. Deadline: 30 s.
 *
 * ctest: native secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, SLOTS = 3000 };
static _Atomic(void *) slots[SLOTS];
static atomic_bool stop;
static uint64_t seed;

static void steps(struct random_state *random, uint64_t owner, size_t count)
{
    for (size_t step = 0; step < count; step++) {
        size_t i = random_below(random, SLOTS);
        void *block = random_below(random, 4) == 0 ? NULL : block_make(random, owner + step);
        void *old = atomic_exchange(&slots[i], block);
        if (old != NULL)
            block_free(old);
    }
}

static void *work(void *argument)
{
    struct random_state random = {seed + (uintptr_t)argument};
    while (!atomic_load(&stop))
        steps(&random, (uintptr_t)argument << 40, 500);
    return NULL;
}

static void *work_once(void *argument)
{
    struct random_state random = {seed * 3 + (uintptr_t)argument};
    steps(&random, (uintptr_t)argument << 40, 1500);
    return NULL;
}

static void child_live(uint64_t round)
{
    struct random_state random = {seed * 7 + round};
    for (int i = 0; i < SLOTS; i++) {
        void *block = atomic_load(&slots[i]);
        if (block != NULL)
            block_verify(block, sizeof(struct stamp));
    }
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work_once, (void *)(i + 9)) != 0)
            _exit(4);
    steps(&random, round << 44, 1500);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    if (round % 8 == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            steps(&random, round << 45, 500);
            _exit(expect_failure_count != 0);
        }
        if (child_wait(grandchild, 30) != 0)
            _exit(5);
    }
    for (int i = 0; i < SLOTS; i++) {
        void *block = atomic_exchange(&slots[i], NULL);
        if (block != NULL)
            block_free(block);
    }
    if (round % 2)
        exit(expect_failure_count != 0);
    _exit(expect_failure_count != 0);
}

int main(void)
{
    seed = random_seed("forks");
    struct random_state options = {seed};
    options_choose(&options);
    double end_seconds = clock_seconds() + stress_seconds(7);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    uint64_t round = 0;
    fflush(stdout);
    for (; clock_seconds() < end_seconds; round++) {
        pid_t child = fork();
        if (child == 0)
            child_live(round);
        REQUIRE(child > 0);
        int status = child_wait(child, 30);
        EXPECT_SAY(status == 0, "child %llu: status %#x (-1: hung)", (unsigned long long)round, (unsigned)status);
        if (status != 0 && expect_failure_count > 5)
            break;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("forks: %llu children\n", (unsigned long long)round);
    return EXPECT_RESULT();
}
