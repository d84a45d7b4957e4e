/* grace.c - what is above the bound on free memory is left for a moment, but not what its thread alone could use; then it goes back.
 *
 * Why:     only the first breach has a grace for certain: after one that was for nothing there is none for two seconds.
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

static pthread_barrier_t barrier;

/* Of each size above 1 KiB some, all freed within the moment that what is above the bound is left for: what a thread keeps of them, nobody
 * else could use. */
static void *free_much_and_wait(void *unused)
{
    enum { SIZES = 40, EACH = 12, FEW = 6, SMALL = 16 };
    char *blocks[SIZES][EACH];
    for (int size = 0; size < SIZES; size++)
        for (int i = 0; i < (size < SMALL ? EACH : FEW); i++) {
            size_t bytes = ((size_t)1024 << size / 8) + (size_t)(size % 8 + 1) * ((size_t)128 << size / 8);
            blocks[size][i] = (char *)malloc(bytes);
            memset(blocks[size][i], 1, bytes);
        }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < EACH; i++)
        for (int size = 0; size < (i < FEW ? SIZES : SMALL); size++) /* by turns: a run of one size is not kept */
            free(blocks[size][i]);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void what_idle_threads_kept_for_themselves_stays_within_the_bound(void)
{
    enum { FEW = 7 };
    pthread_t threads[FEW];
    pthread_barrier_init(&barrier, NULL, FEW + 1);
    long before = resident_kib();
    for (int i = 0; i < FEW; i++)
        REQUIRE(pthread_create(&threads[i], NULL, free_much_and_wait, NULL) == 0);
    pthread_barrier_wait(&barrier);
    long peak = resident_kib();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 400; i++) { /* two seconds */
        for (int k = 0; k < 200; k++)
            free(malloc((size_t)k * 8));
        usleep(5000);
    }
    long after = resident_kib();
    EXPECT_SAY(!resident_is_known() || peak - before > 16000, "%ld KiB at the peak", peak - before);
    EXPECT_SAY(!resident_is_known() || after - before < 14000, "%ld KiB after it", after - before); /* 19,700 where they had the grace */
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < FEW; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

/* What is above the bound is left for a moment, for it is often wanted again; then the next calls find it. */
static void a_burst_goes_back_soon_after_it(void)
{
    static char *blocks[80000];
    long before = resident_kib();
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        blocks[i] = (char *)malloc(500);
        memset(blocks[i], 1, 500);
    }
    long peak = resident_kib();
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    for (int i = 0; i < 60; i++) { /* 0.3 seconds: what the bound leaves is let be for 0.8 */
        for (int k = 0; k < 200; k++)
            free(malloc((size_t)k));
        usleep(5000);
    }
    long after = resident_kib();
    EXPECT_SAY(!resident_is_known() || peak - before > 20000, "%ld KiB at the peak", peak - before);
    EXPECT_SAY(!resident_is_known() || after - before < 12000, "%ld KiB after it", after - before);
}

int main(void)
{
    RUN(what_idle_threads_kept_for_themselves_stays_within_the_bound);
    sleep(3);
    RUN(a_burst_goes_back_soon_after_it);
    return EXPECT_RESULT();
}
