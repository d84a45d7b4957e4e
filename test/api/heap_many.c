/* heap_many.c - thousands of heaps: what they leave behind is little, and there is always a place for a thread.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { HEAPS = 2000, MOST = 50000 };
static hak_heap_t *heaps[MOST];

static void make_and_end(void)
{
    for (int i = 0; i < HEAPS; i++) {
        REQUIRE((heaps[i] = hak_heap_new(0)) != NULL);
        for (size_t k = 0; k < 4; k++) {
            char *block = (char *)hak_heap_malloc(heaps[i], 100 + k * 700);
            REQUIRE(block != NULL);
            block[0] = 1;
        }
    }
    for (int i = 0; i < HEAPS; i++)
        hak_heap_destroy(heaps[i]);
    hak_collect();
}

/* Blocks of the classes above 1 KiB that were handed out since the start. */
static uint64_t handed(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    uint64_t count = 0;
    for (unsigned c = 0; c < stats.class_count; c++)
        if (stats.class_stats[c].block_bytes > 1024)
            count += stats.class_stats[c].alloc_count;
    return count;
}

static void ended_heaps_leave_little(void)
{
    uint64_t handed_before = handed();
    long before = resident_kib();
    make_and_end();
    long once = resident_kib() - before;
    make_and_end(); /* in the same places */
    long twice = resident_kib() - before;
    EXPECT_SAY(once < HEAPS * 14 && twice < once + once / 4, "%ld KiB, then %ld, of %d heaps", once, twice, HEAPS);
    EXPECT_SAY(handed() - handed_before >= (uint64_t)HEAPS * 4, "%llu", (unsigned long long)(handed() - handed_before));
}

static void *allocates(void *unused)
{
    (void)unused;
    char *block = (char *)malloc(1000);
    if (block)
        memset(block, 1, 1000);
    free(block);
    return block;
}

/* A large block is an instance's, and no slab. The heaps stay until the program ends. */
static void there_is_a_place_for_a_thread(void)
{
    int count = 0;
    errno = 0;
    while (count < MOST && (heaps[count] = hak_heap_new(0)) != NULL && hak_heap_malloc(heaps[count], 60000) != NULL)
        count++;
    EXPECT_SAY(count >= 30000 && count < 40000 && errno == ENOMEM, "%d heaps, errno %d", count, errno);
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        void *block;
        REQUIRE(pthread_create(&thread, NULL, allocates, NULL) == 0 && pthread_join(thread, &block) == 0);
        EXPECT(block != NULL);
    }
    EXPECT(hak_heap_malloc(heaps[0], 100) != NULL);
    hak_heap_destroy(heaps[1]);
    EXPECT(hak_heap_malloc(heaps[count], 100) != NULL); /* its place is free again */
}

int main(void)
{
    RUN(ended_heaps_leave_little);
    RUN(there_is_a_place_for_a_thread);
    return EXPECT_RESULT();
}
