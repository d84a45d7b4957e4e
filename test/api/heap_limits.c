/* heap_limits.c - a heap's limit: NULL and ENOMEM beyond it, room again after frees, and nobody else the poorer. */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { MIB = 1 << 20, MANY = 600000 };
static void *blocks[MANY];

static struct hak_heap_stats stats_of(hak_heap_t *heap)
{
    struct hak_heap_stats stats;
    hak_heap_stats_get(heap, &stats, sizeof stats);
    EXPECT_SAY(stats.limit_bytes == 0 || stats.taken_bytes <= stats.limit_bytes, "%llu", (unsigned long long)stats.taken_bytes);
    return stats;
}

/* As many as there is room for. */
static int fill(hak_heap_t *heap, size_t bytes)
{
    int count = 0;
    errno = 0;
    while (count < MANY && (blocks[count] = hak_heap_malloc(heap, bytes)) != NULL)
        memset(blocks[count++], 1, bytes < 64 ? bytes : 64);
    EXPECT_SAY(count < MANY && errno == ENOMEM, "%zu bytes: %d", bytes, count);
    return count;
}

static int asked;
static int on_shortage(void *context, size_t bytes)
{
    (void)context, (void)bytes;
    asked++;
    return 0;
}

static void a_heap_is_refused_beyond_its_limit(void)
{
    static const size_t sizes[] = {16, 100, 600, 3000, 20000, 40000, 300000, 1500000};
    hak_on_shortage(on_shortage, NULL);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        hak_heap_t *heap = hak_heap_new(8 * MIB);
        int first = fill(heap, sizes[s]);
        struct hak_heap_stats stats = stats_of(heap);
        EXPECT_SAY(stats.limit_bytes == 8 * MIB && stats.live_count == (uint64_t)first, "%d", first);
        EXPECT_SAY((uint64_t)first * sizes[s] > 4 * MIB, "%zu bytes: %d", sizes[s], first);
        void *ordinary = malloc(sizes[s]), *large = malloc(20 * MIB);
        hak_heap_t *other = hak_heap_new(8 * MIB);
        EXPECT(ordinary && large && hak_heap_malloc(other, sizes[s]));
        hak_heap_destroy(other);
        free(ordinary);
        free(large);
        for (int i = 0; i < first; i++) /* all of it is room again */
            free(blocks[i]);
        int second = fill(heap, sizes[s]);
        EXPECT_SAY(second >= first, "%zu bytes: %d, then %d", sizes[s], first, second);
        for (int i = 0; i < second; i++)
            free(blocks[i]);
        size_t another = sizes[(s + 3) % (sizeof sizes / sizeof *sizes)]; /* and of any other size */
        int third = fill(heap, another);
        EXPECT_SAY((uint64_t)third * another > 4 * MIB, "%zu after %zu bytes: %d", another, sizes[s], third);
        hak_heap_clear(heap);
        EXPECT(stats_of(heap).taken_bytes == 0);
        EXPECT(fill(heap, sizes[s]) >= first);
        hak_heap_destroy(heap);
    }
    EXPECT(asked == 0);
    hak_on_shortage(NULL, NULL);
}

static void a_large_block_grows_within_the_limit(void)
{
    hak_heap_t *heap = hak_heap_new(64 * MIB);
    char *block = (char *)hak_heap_malloc(heap, 10 * MIB);
    block[0] = 1;
    for (size_t mib = 11; mib <= 60; mib++) { /* in place, or its pages move */
        char *grown = (char *)realloc(block, mib * MIB);
        EXPECT_SAY(grown != NULL, "%zu", mib);
        if (!grown)
            break;
        block = grown;
        EXPECT(hak_heap_of(block) == heap && block[0] == 1 && stats_of(heap).taken_bytes == mib * MIB);
    }
    errno = 0;
    EXPECT(realloc(block, 65 * MIB) == NULL && errno == ENOMEM && hak_heap_realloc(heap, block, 65 * MIB) == NULL);
    EXPECT(hak_expand(block, 70 * MIB) == 0 && block[0] == 1 && stats_of(heap).taken_bytes == 60 * MIB);
    block = (char *)realloc(block, 2 * MIB);
    EXPECT(block && block[0] == 1 && stats_of(heap).taken_bytes == 2 * MIB);
    size_t expanded = hak_expand(block, 5 * MIB);
    EXPECT(expanded == 0 || stats_of(heap).taken_bytes == 5 * MIB);
    block = (char *)realloc(block, 100);
    EXPECT(block && block[0] == 1 && hak_heap_of(block) == heap && stats_of(heap).taken_bytes <= MIB);
    free(block);
    hak_heap_destroy(heap);
}

/* Wherever in its first page it begins, a block needs no granule more than its size does; and one that is refused is as it was. */
static void a_block_grows_to_all_of_the_limit(void)
{
    enum { GRANULE = 65536 };
    for (int i = 0; i < 60; i++) {
        size_t before = i % 2 ? 100000 + 67 * (size_t)i : 40000 + 67 * (size_t)i;
        hak_heap_t *heap = hak_heap_new(2 * GRANULE);
        char *block = (char *)hak_heap_malloc(heap, before);
        stamp_fill(block, before, 3);
        errno = 0;
        EXPECT(hak_heap_realloc(heap, block, 2 * GRANULE + 1) == NULL && errno == ENOMEM);
        EXPECT(realloc(block, 3 * GRANULE - 64) == NULL);
        EXPECT(stamp_check(block, before, before, 3) == SIZE_MAX && malloc_usable_size(block) >= before && hak_heap_of(block) == heap);
        char *grown = (char *)hak_heap_realloc(heap, block, 2 * GRANULE);
        EXPECT_SAY(grown != NULL, "%zu to %d", before, 2 * GRANULE);
        if (grown) {
            EXPECT(stamp_check(grown, before, before, 3) == SIZE_MAX && malloc_usable_size(grown) >= 2 * GRANULE && hak_heap_of(grown) == heap);
            EXPECT(stats_of(heap).taken_bytes == 2 * GRANULE && stats_of(heap).live_count == 1);
        }
        free(grown ? grown : block);
        EXPECT(stats_of(heap).taken_bytes == 0);
        hak_heap_destroy(heap);
    }
}

/* What is refused costs nothing: not a page of it is written. */
static void a_block_that_may_not_grow_is_not_touched(void)
{
    hak_heap_t *heap = hak_heap_new(64 * MIB);
    char *block = (char *)hak_heap_malloc(heap, 50 * MIB - 2000);
    block[0] = 7;
    long before = (long)resident_kib();
    for (size_t i = 0; i < 1100; i++) /* over a granule's end, wherever the block begins */
        EXPECT(realloc(block, 65 * MIB + 65 * (size_t)i) == NULL);
    EXPECT_SAY((long)resident_kib() < before + 8192 && block[0] == 7, "%ld KiB, %ld before", (long)resident_kib(), (long)before);
    free(block);
    hak_heap_destroy(heap);
}

static void a_limit_of_little_is_a_granule(void)
{
    hak_heap_t *heap = hak_heap_new(1);
    EXPECT(stats_of(heap).limit_bytes == 65536);
    EXPECT(hak_heap_malloc(heap, 65537) == NULL && hak_heap_malloc(heap, 65536) != NULL);
    hak_heap_destroy(heap);
}

static void an_alignment_costs_no_more_than_the_size(void)
{
    hak_heap_t *heap = hak_heap_new(MIB);
    for (int i = 0; i < 8; i++)
        EXPECT(hak_heap_aligned_alloc(heap, 4 * MIB, 64) != NULL);
    EXPECT_SAY(stats_of(heap).taken_bytes <= 8 * 65536, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    hak_heap_destroy(heap);
}

static void *fills(void *heap)
{
    uintptr_t count = 0;
    void **mine = (void **)malloc(100000 * sizeof *mine);
    while ((mine[count] = hak_heap_malloc((hak_heap_t *)heap, 200)) != NULL)
        count++;
    for (uintptr_t i = 0; i < count; i++)
        free(mine[i]);
    free(mine);
    return (void *)count;
}

static void what_an_ended_thread_left_free_is_room(void)
{
    hak_heap_t *heap = hak_heap_new(4 * MIB);
    pthread_t threads[4];
    void *count;
    for (int round = 0; round < 4; round++) {
        REQUIRE(pthread_create(&threads[0], NULL, fills, heap) == 0 && pthread_join(threads[0], &count) == 0);
        EXPECT_SAY((uintptr_t)count > 15000, "%d", (int)(uintptr_t)count);
        int here = fill(heap, 1000);
        EXPECT_SAY(here > 3000, "%d", here);
        for (int i = 0; i < here; i++)
            free(blocks[i]);
    }
    for (int t = 0; t < 4; t++) /* together they never have more */
        REQUIRE(pthread_create(&threads[t], NULL, fills, heap) == 0);
    for (int i = 0; i < 50; i++)
        stats_of(heap);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    hak_collect();
    EXPECT_SAY(stats_of(heap).live_count == 0 && stats_of(heap).taken_bytes == 0, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    hak_heap_destroy(heap);
}

/* --- by whom it is freed --- */

static pthread_barrier_t barrier;
static int filled, got;

static void *fills_and_asks_again(void *heap)
{
    filled = fill((hak_heap_t *)heap, 1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* others free meanwhile */
    for (got = 0; got < filled && hak_heap_malloc((hak_heap_t *)heap, 1000) != NULL; got++) {
    }
    return NULL;
}

/* A consumer frees what a producer made, and waits for more; the producer waits for room. */
static void what_another_thread_frees_is_room_at_once(void)
{
    hak_heap_t *heap = hak_heap_new(2 * MIB);
    pthread_t thread;
    REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, fills_and_asks_again, heap) == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 100; i < 103; i++)
        free(blocks[i]);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    EXPECT_SAY(got == 3, "%d of 3 blocks, of %d", got, filled);
    hak_heap_destroy(heap);
}

static void *fills_and_ends(void *heap)
{
    filled = fill((hak_heap_t *)heap, 1000);
    return NULL;
}

/* One here, one there, in slabs of which less is free than makes them come back to their lists. */
static void what_the_caller_freed_of_an_ended_threads_is_room(void)
{
    hak_heap_t *heap = hak_heap_new(4 * MIB);
    pthread_t thread;
    int freed = 0;
    EXPECT(hak_heap_malloc(heap, 500)); /* so that it has a part of its own, and does not take over the other's */
    REQUIRE(pthread_create(&thread, NULL, fills_and_ends, heap) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < filled; i += 11, freed++)
        free(blocks[i]);
    for (got = 0; got < freed && hak_heap_malloc(heap, 1000) != NULL; got++) {
    }
    EXPECT_SAY(got == freed && freed > 100, "%d of %d blocks", got, freed);
    hak_heap_destroy(heap);
}

static void *makes_some(void *heap)
{
    for (int i = 0; i < 2000; i++)
        REQUIRE((blocks[i] = hak_heap_malloc((hak_heap_t *)heap, 100)) != NULL);
    return NULL;
}

/* Whatever its caller freed before, that another thread had allocated. */
static void a_heap_that_is_cleared_takes_nothing(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    pthread_t thread;
    free(malloc(100));
    EXPECT(hak_heap_malloc(heap, 500));
    REQUIRE(pthread_create(&thread, NULL, makes_some, heap) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 2000; i += 64)
        free(blocks[i]);
    hak_heap_clear(heap);
    EXPECT_SAY(stats_of(heap).taken_bytes == 0, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    hak_heap_destroy(heap);
}

int main(void)
{
    RUN(a_heap_is_refused_beyond_its_limit);
    RUN(a_large_block_grows_within_the_limit);
    RUN(a_block_grows_to_all_of_the_limit);
    RUN(a_block_that_may_not_grow_is_not_touched);
    RUN(a_limit_of_little_is_a_granule);
    RUN(an_alignment_costs_no_more_than_the_size);
    RUN(what_an_ended_thread_left_free_is_room);
    RUN(what_another_thread_frees_is_room_at_once);
    RUN(what_the_caller_freed_of_an_ended_threads_is_room);
    RUN(a_heap_that_is_cleared_takes_nothing);
    return EXPECT_RESULT();
}
