/* heap_basics.c - heaps of hakmem.h: whose a block is, what clear, destroy and delete leave, and what the statistics say.
 *
 * ctest: secure
 */
#include "expect.h"

#include <hakmem/hakmem.h>

static const size_t sizes[] = {0, 1, 16, 40, 100, 500, 1000, 1500, 5000, 9000, 20000, 32768, 32769, 70000, 300000, 3000000, 9000000};
enum { SIZES = sizeof sizes / sizeof *sizes, MANY = 3000 };

struct sums {
    uint64_t count, bytes;
};
static int sum(const struct hak_held *held, void *context)
{
    struct sums *sums = (struct sums *)context;
    sums->count++;
    sums->bytes += held->bytes;
    return 0;
}

static struct hak_heap_stats stats_of(hak_heap_t *heap)
{
    struct hak_heap_stats stats;
    struct sums sums = {0, 0};
    hak_heap_stats_get(heap, &stats, sizeof stats);
    EXPECT(hak_heap_walk(heap, sum, &sums) == 0);
    EXPECT(sums.count == stats.live_count && sums.bytes == stats.live_bytes);
    EXPECT(stats.taken_bytes >= stats.live_bytes);
    return stats;
}

static uint64_t live_bytes(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.live_bytes;
}

static void blocks_are_the_heaps_and_ordinary_ones(void)
{
    hak_heap_t *heap = hak_heap_new(0), *other = hak_heap_new(0);
    REQUIRE(heap && other && heap != other);
    void *ordinary = malloc(100), *large = malloc(100000);
    EXPECT(hak_heap_of(ordinary) == NULL && hak_heap_of(large) == NULL && hak_heap_of(NULL) == NULL);
    for (size_t s = 0; s < SIZES; s++) {
        void *block = hak_heap_malloc(heap, sizes[s]), *another = hak_heap_malloc(other, sizes[s]);
        REQUIRE(block && another);
        EXPECT(hak_heap_of(block) == heap && hak_heap_of(another) == other);
        EXPECT((uintptr_t)block % 16 == 0 && malloc_usable_size(block) >= sizes[s]);
        stamp_fill(block, malloc_usable_size(block) < 256 ? sizes[s] : malloc_usable_size(block), s);
        struct hak_heap_stats stats = stats_of(heap);
        EXPECT_SAY(stats.live_count == 1 && stats.live_bytes == malloc_usable_size(block), "%zu: %llu", sizes[s], (unsigned long long)stats.live_bytes);
        free(another);
        free(block);
        EXPECT(stats_of(heap).live_count == 0);
    }
    hak_heap_destroy(heap);
    hak_heap_destroy(other);
    free(ordinary);
    free(large);
}

static void calloc_is_zero_and_alignments_hold(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int round = 0; round < 3; round++) {
        for (size_t s = 0; s < SIZES; s++) {
            unsigned char *block = (unsigned char *)hak_heap_calloc(heap, 1, sizes[s]);
            REQUIRE(block);
            for (size_t i = 0; i < sizes[s]; i++)
                if (block[i]) {
                    EXPECT_SAY(false, "%zu is dirty at %zu", sizes[s], i);
                    break;
                }
            memset(block, 0xaa, sizes[s]);
            if (s % 2)
                free(block);
        }
        hak_heap_clear(heap);
    }
    for (size_t align = 1; align <= 1 << 18; align *= 2)
        for (size_t s = 0; s < SIZES - 2; s++) {
            void *block = hak_heap_aligned_alloc(heap, align, sizes[s]);
            EXPECT_SAY(block && (uintptr_t)block % align == 0 && hak_heap_of(block) == heap, "%zu %zu", align, sizes[s]);
            memset(block, 1, sizes[s]);
        }
    errno = 0;
    EXPECT(hak_heap_aligned_alloc(heap, 24, 24) == NULL && errno == EINVAL);
    errno = 0;
    EXPECT(hak_heap_malloc(heap, (size_t)PTRDIFF_MAX + 1) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(hak_heap_calloc(heap, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    hak_heap_destroy(heap);
}

static void realloc_keeps_the_heap_and_the_contents(void)
{
    hak_heap_t *heap = hak_heap_new(0), *other = hak_heap_new(0);
    struct random_state random = {random_seed("heap_basics")};
    void *block = hak_heap_realloc(heap, NULL, 10);
    size_t bytes = 10;
    stamp_fill(block, bytes, 7);
    for (int i = 0; i < 2000; i++) {
        size_t wanted = 1 + random_below(&random, (size_t)64 << random_below(&random, 17));
        hak_heap_t *now = i % 7 == 3 ? other : i % 7 == 5 ? heap : hak_heap_of(block);
        EXPECT(stamp_check(block, bytes, bytes, 7) == SIZE_MAX);
        size_t kept = bytes < wanted ? bytes : wanted;
        unsigned char *moved = (unsigned char *)(i % 7 == 3 || i % 7 == 5 ? hak_heap_realloc(now, block, wanted) : realloc(block, wanted));
        REQUIRE(moved);
        EXPECT_SAY(stamp_check(moved, bytes, kept < 256 ? kept : kept - 256, 7) == SIZE_MAX || bytes <= 16384, "%zu -> %zu", bytes, wanted);
        EXPECT_SAY(hak_heap_of(moved) == now, "%zu -> %zu", bytes, wanted);
        EXPECT(stats_of(now).live_count == 1 && stats_of(now == heap ? other : heap).live_count == 0);
        block = moved;
        bytes = wanted;
        stamp_fill(block, bytes, 7);
    }
    void *ordinary = malloc(5000);
    memset(ordinary, 5, 5000);
    unsigned char *taken = (unsigned char *)hak_heap_realloc(heap, ordinary, 100);
    EXPECT(hak_heap_of(taken) == heap && taken[0] == 5 && taken[99] == 5);
    EXPECT(hak_heap_realloc(heap, taken, 0) == NULL);
    hak_heap_destroy(heap);
    hak_heap_destroy(other);
}

static void clear_frees_all_and_nothing_else(void)
{
    uint64_t before = live_bytes();
    hak_heap_t *heap = hak_heap_new(0), *other = hak_heap_new(0);
    static void *kept[MANY], *ordinary[MANY];
    struct random_state random = {random_seed("heap_basics")};
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MANY; i++) {
            size_t bytes = sizes[random_below(&random, i % 100 ? 12 : SIZES)];
            void *block = hak_heap_malloc(heap, bytes);
            REQUIRE(block);
            if (i % 3 == 0)
                free(block);
            if (round == 0) {
                kept[i] = hak_heap_malloc(other, 64);
                ordinary[i] = malloc(64);
                memset(kept[i], 1, 64);
                memset(ordinary[i], 2, 64);
            }
        }
        EXPECT(stats_of(heap).live_count == MANY - MANY / 3);
        hak_heap_clear(heap);
        struct hak_heap_stats stats = stats_of(heap);
        EXPECT_SAY(stats.live_count == 0 && stats.taken_bytes == 0, "%llu %llu", (unsigned long long)stats.live_count, (unsigned long long)stats.taken_bytes);
    }
    hak_heap_destroy(heap);
    for (int i = 0; i < MANY; i++) {
        EXPECT(*(char *)kept[i] == 1 && *(char *)ordinary[i] == 2 && hak_heap_of(kept[i]) == other);
        free(ordinary[i]);
    }
    EXPECT(stats_of(other).live_count == MANY);
    hak_heap_destroy(other);
    EXPECT_SAY(live_bytes() == before, "%llu, not %llu", (unsigned long long)live_bytes(), (unsigned long long)before);
}

static void blocks_outlive_a_heap_that_is_deleted(void)
{
    uint64_t before = live_bytes();
    static void *blocks[MANY];
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < MANY; i++) {
        size_t bytes = sizes[1 + i % (SIZES - 3)];
        blocks[i] = hak_heap_malloc(heap, bytes);
        stamp_fill(blocks[i], bytes, (uint64_t)i);
        if (i % 5 == 0) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    uint64_t during = live_bytes();
    hak_heap_delete(heap);
    EXPECT(live_bytes() == during);
    for (int i = 0; i < MANY; i++)
        if (blocks[i]) {
            size_t bytes = sizes[1 + i % (SIZES - 3)];
            EXPECT(hak_heap_of(blocks[i]) == NULL && stamp_check(blocks[i], bytes, bytes, (uint64_t)i) == SIZE_MAX);
        }
    hak_heap_t *next = hak_heap_new(0); /* it may have the same heaps */
    void *one = hak_heap_malloc(next, 100);
    for (int i = 0; i < MANY; i++)
        if (i % 2)
            free(blocks[i]);
    hak_heap_destroy(next);
    (void)one;
    for (int i = 0; i < MANY; i++)
        if (i % 2 == 0)
            free(blocks[i]);
    EXPECT_SAY(live_bytes() == before, "%llu, not %llu", (unsigned long long)live_bytes(), (unsigned long long)before);
}

static void many_heaps_need_few(void)
{
    static struct hak_stats before, after;
    hak_stats_get(&before, sizeof before);
    for (int round = 0; round < 3000; round++) {
        hak_heap_t *heap = hak_heap_new(0);
        REQUIRE(heap);
        for (int i = 0; i < 20; i++)
            memset(hak_heap_malloc(heap, (size_t)(i * 50)), 1, (size_t)(i * 50));
        if (round % 2)
            hak_heap_destroy(heap);
        else {
            hak_heap_clear(heap);
            hak_heap_delete(heap);
        }
    }
    hak_stats_get(&after, sizeof after);
    EXPECT_SAY(after.heap_count <= before.heap_count + 2, "%llu heaps", (unsigned long long)after.heap_count);
    static hak_heap_t *heaps[500];
    for (int i = 0; i < 500; i++) {
        heaps[i] = hak_heap_new(0);
        for (int k = 0; k < 10; k++)
            EXPECT(hak_heap_of(hak_heap_malloc(heaps[i], 100)) == heaps[i]);
    }
    for (int i = 0; i < 500; i++)
        EXPECT(hak_heap_of(hak_heap_malloc(heaps[i], 100)) == heaps[i] && stats_of(heaps[i]).live_count == 11);
    for (int i = 0; i < 500; i++)
        hak_heap_destroy(heaps[i]);
}

int main(void)
{
    RUN(blocks_are_the_heaps_and_ordinary_ones);
    RUN(calloc_is_zero_and_alignments_hold);
    RUN(realloc_keeps_the_heap_and_the_contents);
    RUN(clear_frees_all_and_nothing_else);
    RUN(blocks_outlive_a_heap_that_is_deleted);
    RUN(many_heaps_need_few);
    return EXPECT_RESULT();
}
