/* only_frees.c - a thread that only frees takes over the heap of one that has ended: what others free of it comes back all the same.
 *
 * Owns:    a maker, which allocates and ends; a successor, which frees two of its blocks first, and so gets its heap; another thread, which
 *          frees a quarter of them meanwhile.
 * Why:     mail was read on visits, and who only frees makes none: each slab of which another thread had freed one block was held as
 *          long as that thread went on.
 *
 * ctest: native
 */
#include "expect.h"

#include "hakmem/hakmem.h"

#include <pthread.h>
#include <semaphore.h>

enum { COUNT = 200000, BYTES = 64 };
extern __typeof__(hak_stats_get) hak_stats_get __attribute__((weak));
static void *block[COUNT];
static sem_t adopted, other_done, all_freed, looked;

static uint64_t taken_bytes(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.taken_bytes;
}

static void *makes(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT; i++)
        block[i] = malloc(BYTES);
    return NULL;
}

static void *succeeds(void *unused)
{
    (void)unused;
    free(block[1]);
    free(block[2]);
    sem_post(&adopted);
    sem_wait(&other_done);
    for (size_t i = 3; i < COUNT; i++)
        if (i % 4 != 0)
            free(block[i]);
    sem_post(&all_freed);
    sem_wait(&looked);
    return NULL;
}

static void *frees_a_quarter(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT; i += 4)
        free(block[i]);
    return NULL;
}

static void what_others_free_of_its_heap_comes_back(void)
{
    pthread_t maker, successor, other;
    sem_init(&adopted, 0, 0), sem_init(&other_done, 0, 0), sem_init(&all_freed, 0, 0), sem_init(&looked, 0, 0);
    REQUIRE(pthread_create(&maker, NULL, makes, NULL) == 0);
    pthread_join(maker, NULL);
    uint64_t before = taken_bytes();
    REQUIRE(pthread_create(&successor, NULL, succeeds, NULL) == 0);
    sem_wait(&adopted);
    REQUIRE(pthread_create(&other, NULL, frees_a_quarter, NULL) == 0);
    pthread_join(other, NULL);
    sem_post(&other_done);
    sem_wait(&all_freed);
    uint64_t after = taken_bytes();
    EXPECT_SAY(before > (uint64_t)COUNT * BYTES && after < before / 4, "%llu KiB of %llu are in spans, and nothing lives",
               (unsigned long long)after >> 10, (unsigned long long)before >> 10);
    sem_post(&looked);
    pthread_join(successor, NULL);
}

int main(void)
{
    if (!hak_stats_get)
        return EXPECT_SKIPPED;
    RUN(what_others_free_of_its_heap_comes_back);
    return EXPECT_RESULT();
}
