/* usable_size.c - malloc_usable_size says what may be used: all of it, and no neighbour minds.
 *
 * Owns:   nothing.
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

static void usable_bytes_are_the_blocks_own(void)
{
    enum { COUNT = 200 };
    static char *blocks[COUNT];
    for (size_t size = 0; size <= 70000; size += size < 1100 ? 7 : 531) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = (char *)malloc(size);
            REQUIRE(blocks[i] != NULL);
            memset(blocks[i], i, malloc_usable_size(blocks[i]));
        }
        for (int i = 0; i < COUNT; i++) {
            size_t usable = malloc_usable_size(blocks[i]);
            EXPECT_SAY(usable >= size, "%zu usable of %zu", usable, size);
            EXPECT_SAY(usable == 0 || (blocks[i][0] == (char)i && memcmp(blocks[i], blocks[i] + 1, usable - 1) == 0), "size %zu", size);
        }
        for (int i = 0; i < COUNT; i++)
            free(blocks[i]);
    }
}

/* The span is aligned; its size is the block's, not the alignment's. */
static void a_small_block_of_large_alignment_is_small(void)
{
    static struct hak_stats stats;
    for (int lg = 16; lg <= 26; lg++)
        for (size_t size = 1; size <= 40000; size = size * 3 + 1) {
            hak_stats_get(&stats, sizeof stats);
            uint64_t before = stats.taken_bytes;
            void *block = NULL;
            EXPECT(posix_memalign(&block, (size_t)1 << lg, size) == 0 && ((uintptr_t)block & (((size_t)1 << lg) - 1)) == 0);
            EXPECT_SAY(malloc_usable_size(block) >= size && malloc_usable_size(block) <= 65536, "%zu usable of %zu at 1 << %d", malloc_usable_size(block), size, lg);
            hak_stats_get(&stats, sizeof stats);
            EXPECT_SAY(stats.taken_bytes <= before + 65536, "%llu taken for %zu at 1 << %d", (unsigned long long)(stats.taken_bytes - before), size, lg);
            memset(block, 1, malloc_usable_size(block));
            free(block);
        }
}

static void the_answer_stays_the_same(void)
{
    for (size_t size = 1; size < (size_t)16 << 20; size = size * 2 + 7) {
        void *block = malloc(size);
        size_t usable = malloc_usable_size(block);
        for (int i = 0; i < 10; i++)
            EXPECT(malloc_usable_size(block) == usable);
        EXPECT(hak_usable_size(block) == usable);
        free(block);
    }
    EXPECT(hak_usable_size(NULL) == 0);
}

static void little_is_wasted(void)
{
    for (size_t size = 1; size <= 32768; size += size < 1024 ? 1 : 100) {
        void *warm[80];
        for (int i = 0; i < 80; i++)
            warm[i] = malloc(size);
        size_t limit = size <= 256 ? (size + 15) / 16 * 16 : size <= 1024 ? (size + 31) / 32 * 32 : size + size / 8 + 16 + (size > 3584 ? 128 : 0);
        /* The first two, and, before a page is opened for the class, four and one for 32 KiB that it hands out, a word ahead, may be of a class up to half larger. */
        size_t larger = 0, most = limit + (limit / 2 > 128 ? limit / 2 : 128);
        for (int i = 0; i < 80; i++) {
            size_t usable = malloc_usable_size(warm[i]);
            larger += usable > limit;
            EXPECT_SAY(i < 2 || usable <= most, "%zu usable of %zu", usable, size);
        }
        EXPECT_SAY(larger <= 2 + 5 + (80 + 24) * limit / 32768, "%zu of 80 blocks of %zu are larger than %zu", larger, size, limit);
        for (int i = 0; i < 80; i++)
            free(warm[i]);
    }
    for (size_t size = 32769; size <= (size_t)64 << 20; size += size / 3) {
        void *block = malloc(size);
        size_t usable = malloc_usable_size(block);
        EXPECT_SAY(usable < size + 65536, "%zu usable of %zu", usable, size);
        free(block);
    }
}

static void aligned_blocks_say_what_follows_the_address(void)
{
    for (size_t alignment = 16; alignment <= (size_t)2 << 20; alignment *= 2)
        for (size_t size = 1; size < 300000; size = size * 3 + 1) {
            char *one = (char *)memalign(alignment, size), *two = (char *)memalign(alignment, size);
            size_t usable = malloc_usable_size(one);
            EXPECT(usable >= size);
            memset(one, 1, usable);
            memset(two, 2, malloc_usable_size(two));
            EXPECT(one[0] == 1 && memcmp(one, one + 1, usable - 1) == 0);
            free(one);
            free(two);
        }
}

static void realloc_to_the_usable_size_stays(void)
{
    for (size_t size = 1; size < (size_t)4 << 20; size = size * 2 + 3) {
        void *block = malloc(size);
        void *same = realloc(block, malloc_usable_size(block));
        EXPECT_SAY(same == block, "size %zu moved", size);
        free(same);
    }
}

/* From the third thread on sizes above 4 KiB are served by every second class, until one of those between is asked for often. */
static void *is_served_by_its_own(void *unused)
{
    (void)unused;
    enum { COUNT = 64, BYTES = 4500, OWN = 4736, PAIR = 5248 };
    void *blocks[COUNT];
    size_t first = 0, last = 0;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        last = malloc_usable_size(blocks[i]);
        if (i == 0) first = last;
    }
    EXPECT_SAY(first == PAIR, "%zu usable of %d", first, BYTES);
    EXPECT_SAY(last == OWN, "%zu usable of %d", last, BYTES);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    return NULL;
}

static void *next_thread(void *unused)
{
    (void)unused;
    pthread_t third;
    free(malloc(1));
    REQUIRE(pthread_create(&third, NULL, is_served_by_its_own, NULL) == 0);
    pthread_join(third, NULL);
    return NULL;
}

static void a_class_above_4_kib_serves_its_own_sizes_where_they_are_many(void)
{
    pthread_t second;
    REQUIRE(pthread_create(&second, NULL, next_thread, NULL) == 0);
    pthread_join(second, NULL);
}

int main(void)
{
    RUN(little_is_wasted); /* first: what a class may borrow grows with all that it ever handed out, and is asked for where its pages went back meanwhile */
    RUN(usable_bytes_are_the_blocks_own);
    RUN(a_small_block_of_large_alignment_is_small);
    RUN(the_answer_stays_the_same);
    RUN(aligned_blocks_say_what_follows_the_address);
    RUN(realloc_to_the_usable_size_stays);
    RUN(a_class_above_4_kib_serves_its_own_sizes_where_they_are_many);
    return EXPECT_RESULT();
}
