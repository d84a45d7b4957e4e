/* contents.c - blocks of every size and alignment are aligned, their own, and hold what was written.
 *
 * Owns:   nothing.
 * Method: every block is filled whole (all usable bytes) with a pattern of its own while all others of the
 *         round live; a byte that two blocks share fails one of the two checks.
 * ctest: secure
 */
#include "expect.h"

struct held {
    void *block;
    size_t bytes;
    uint64_t owner;
};

enum { HELD_MAX = 40000 };
static struct held held[HELD_MAX];
static size_t held_count;
static uint64_t owner_next;

static void held_add(void *block, size_t size, size_t alignment)
{
    EXPECT_SAY(block != NULL, "size %zu, alignment %zu", size, alignment);
    if (block == NULL)
        return;
    REQUIRE(held_count < HELD_MAX);
    EXPECT_SAY(((uintptr_t)block & (alignment - 1)) == 0, "%p of size %zu for alignment %zu", block, size, alignment);
    size_t usable = malloc_usable_size(block);
    EXPECT_SAY(usable >= size, "%zu usable of %zu", usable, size);
    struct held *one = &held[held_count++];
    *one = (struct held){block, usable, owner_next++};
    stamp_fill(block, usable, one->owner);
}

static void held_check_and_free(size_t i)
{
    size_t at = stamp_check(held[i].block, held[i].bytes, held[i].bytes, held[i].owner);
    EXPECT_SAY(at == SIZE_MAX, "block %p of %zu bytes changed at %zu", held[i].block, held[i].bytes, at);
    free(held[i].block);
    held[i] = held[--held_count];
}

static int held_compare(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct held *)a)->block, y = (uintptr_t)((const struct held *)b)->block;
    return (x > y) - (x < y);
}

static void held_expect_no_overlap(void)
{
    qsort(held, held_count, sizeof *held, held_compare);
    for (size_t i = 1; i < held_count; i++)
        EXPECT_SAY((char *)held[i - 1].block + held[i - 1].bytes <= (char *)held[i].block,
                   "%p of %zu bytes reaches into %p", held[i - 1].block, held[i - 1].bytes, held[i].block);
}

static void held_free_all(struct random_state *random)
{
    held_expect_no_overlap();
    while (held_count != 0)
        held_check_and_free(random_below(random, held_count));
}

static struct random_state the_random;

static void every_size_to_40000_at_once(void)
{
    for (size_t size = 0; size < 40000; size += size < 9000 ? 1 : 37)
        held_add(malloc(size), size, 16);
    held_free_all(&the_random);
}

static void many_blocks_of_each_small_size(void)
{
    for (size_t size = 1; size <= 1100; size += 9) {
        for (int i = 0; i < 700; i++)
            held_add(malloc(size), size, 16);
        held_free_all(&the_random);
    }
}

static void sizes_around_every_power_of_two_to_64_mib(void)
{
    for (int round = 0; round < 2; round++) {
        for (size_t power = 16; power <= (size_t)64 << 20; power *= 2)
            for (long offset = -17; offset <= 17; offset++)
                if ((long)power + offset >= 0 && (power <= (size_t)4 << 20 || offset % 16 == 0))
                    held_add(malloc(power + (size_t)offset), power + (size_t)offset, 16);
        held_free_all(&the_random);
    }
}

static void every_alignment_to_4_mib_with_every_kind_of_size(void)
{
    static const size_t sizes[] = {0, 1, 16, 17, 48, 100, 512, 1000, 1024, 1025, 3000, 4096, 10000, 32768, 32769, 65536, 70000, 262144, 1000000};
    for (size_t alignment = 16; alignment <= (size_t)4 << 20; alignment *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int repeat = 0; repeat < 4; repeat++) {
                void *block = NULL;
                EXPECT(posix_memalign(&block, alignment, sizes[i]) == 0);
                held_add(block, sizes[i], alignment);
                held_add(aligned_alloc(alignment, sizes[i]), sizes[i], alignment);
                held_add(memalign(alignment, sizes[i]), sizes[i], alignment);
            }
        if (alignment & 0x111110)
            held_free_all(&the_random);
    }
    held_free_all(&the_random);
}

static void aligned_and_plain_blocks_mixed(void)
{
    for (int i = 0; i < 60000; i++) {
        if (held_count > 3000 || (held_count > 0 && random_below(&the_random, 5) < 2)) {
            held_check_and_free(random_below(&the_random, held_count));
            continue;
        }
        size_t size = random_below(&the_random, (size_t)1 << (4 + random_below(&the_random, 14)));
        if (random_below(&the_random, 3) != 0) {
            held_add(malloc(size), size, 16);
        } else {
            size_t alignment = (size_t)16 << random_below(&the_random, 10);
            held_add(memalign(alignment, size), size, alignment);
        }
    }
    held_free_all(&the_random);
}

static void realloc_of_aligned_blocks_keeps_contents(void)
{
    for (size_t alignment = 32; alignment <= (size_t)1 << 20; alignment *= 2)
        for (size_t size = 1; size < (size_t)1 << 20; size = size * 5 + 3) {
            char *block = (char *)memalign(alignment, size);
            REQUIRE(block != NULL);
            pattern_fill(block, 0, size, alignment);
            block = (char *)realloc(block, size * 3 + 100);
            REQUIRE(block != NULL);
            EXPECT(pattern_check(block, 0, size, alignment) == size);
            block = (char *)realloc(block, size / 2 + 1);
            REQUIRE(block != NULL);
            EXPECT(pattern_check(block, 0, size / 2 + 1, alignment) == size / 2 + 1);
            free(block);
        }
}

int main(void)
{
    the_random.word = random_seed("contents");
    RUN(every_size_to_40000_at_once);
    RUN(many_blocks_of_each_small_size);
    RUN(sizes_around_every_power_of_two_to_64_mib);
    RUN(every_alignment_to_4_mib_with_every_kind_of_size);
    RUN(aligned_and_plain_blocks_mixed);
    RUN(realloc_of_aligned_blocks_keeps_contents);
    return EXPECT_RESULT();
}
