/* idle_threads.c - memory that idle threads have freed goes back when any other thread asks, and when it works.
 *
 * Owns:    eight threads that allocate, free and then only wait.
 * Why:     a pool's threads keep a peak's memory in other allocators for as long as they sleep.
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { THREADS = 8, BLOCKS = 20000 };
static pthread_barrier_t barrier;

static void *rise_fall_and_wait(void *argument)
{
    char **blocks = (char **)malloc(BLOCKS * sizeof *blocks);
    size_t bytes = (uintptr_t)argument % 2 ? 1000 : 200;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = (char *)malloc(bytes);
        memset(blocks[i], 1, bytes);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 2000 != 0)
            free(blocks[i]);
    pthread_barrier_wait(&barrier); /* all is freed; this thread makes no call from here on */
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < BLOCKS; i += 2000) {
        EXPECT(blocks[i][0] == 1 && memcmp(blocks[i], blocks[i] + 1, bytes - 1) == 0);
        free(blocks[i]);
    }
    free(blocks);
    return NULL;
}

static void peak_and_idle(bool ask)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    long before = resident_kib();
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, rise_fall_and_wait, (void *)i) == 0);
    pthread_barrier_wait(&barrier);
    long peak = resident_kib();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (ask)
        hak_collect();
    for (int i = 0; !ask && i < 400; i++) { /* otherwise: two seconds of a little work in this thread alone */
        for (int k = 0; k < 200; k++)
            free(malloc((size_t)k * 8));
        usleep(5000);
    }
    long after = resident_kib();
    EXPECT_SAY(!resident_is_known() || peak - before > 80000, "%ld KiB at the peak", peak - before);
    EXPECT_SAY(!resident_is_known() || after - before < 12000, "%ld KiB after it", after - before);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void idle_threads_memory_goes_back_when_another_collects(void) { peak_and_idle(true); }
static void idle_threads_memory_goes_back_while_another_works(void) { peak_and_idle(false); }

int main(void)
{
    RUN(idle_threads_memory_goes_back_when_another_collects);
    RUN(idle_threads_memory_goes_back_while_another_works);
    return EXPECT_RESULT();
}
