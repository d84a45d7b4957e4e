/* realloc_contents.c - realloc keeps contents across every boundary, from 16 bytes to 300 MiB.
 *
 * Owns:   nothing.
 * Method: a block is stamped (whole to 16 KiB; head, tail and every page above), resized, and what both
 *         sizes hold is checked; neighbours of the same kind live on both sides and are checked as well.
 * ctest: secure
 */
#include "expect.h"

static uint64_t owner_next = 1;

/* Resizes *block from `from` to `to` bytes and checks; stamps it anew. */
static void resize(char **block, size_t from, size_t to, uint64_t *owner)
{
    char *moved = (char *)realloc(*block, to);
    REQUIRE(moved != NULL);
    size_t at = stamp_check(moved, from, to, *owner);
    EXPECT_SAY(at == SIZE_MAX, "%zu -> %zu bytes changed at %zu", from, to, at);
    EXPECT_SAY(((uintptr_t)moved & 15) == 0, "%p", (void *)moved);
    EXPECT_SAY(malloc_usable_size(moved) >= to, "%zu usable of %zu", malloc_usable_size(moved), to);
    *block = moved;
    *owner = owner_next++;
    stamp_fill(moved, to, *owner);
}

static void byte_by_byte_up_and_down_to_3000(void)
{
    char *block = (char *)malloc(1);
    uint64_t owner = 0;
    size_t size = 1;
    stamp_fill(block, size, owner);
    for (; size < 3000; size++)
        resize(&block, size, size + 1, &owner);
    for (; size > 1; size--)
        resize(&block, size, size - 1, &owner);
    free(block);
}

static void across_every_pair_of_boundaries(void)
{
    static size_t sizes[64];
    size_t count = 0;
    for (size_t power = 16; power <= (size_t)1 << 20; power *= 4) {
        sizes[count++] = power - 1;
        sizes[count++] = power;
        sizes[count++] = power + 1;
    }
    static const size_t further[] = {1008, 1040, 32752, 32784, 65520, 65552, 131072, 131088, (size_t)2 << 20, ((size_t)4 << 20) - 16,
                                     ((size_t)4 << 20) + 16, (size_t)9 << 20};
    for (size_t i = 0; i < sizeof further / sizeof *further; i++)
        sizes[count++] = further[i];
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            uint64_t owner = owner_next++;
            char *before = (char *)malloc(sizes[i]), *block = (char *)malloc(sizes[i]), *after = (char *)malloc(sizes[i]);
            REQUIRE(before != NULL && block != NULL && after != NULL);
            stamp_fill(before, sizes[i], 77);
            stamp_fill(after, sizes[i], 78);
            stamp_fill(block, sizes[i], owner);
            resize(&block, sizes[i], sizes[j], &owner);
            EXPECT(stamp_check(before, sizes[i], sizes[i], 77) == SIZE_MAX);
            EXPECT(stamp_check(after, sizes[i], sizes[i], 78) == SIZE_MAX);
            free(block);
            free(before);
            free(after);
        }
}

static void doubling_to_300_mib_and_back(void)
{
    char *block = (char *)malloc(16);
    uint64_t owner = 0;
    size_t size = 16;
    stamp_fill(block, size, owner);
    while (size < (size_t)300 << 20) {
        size_t next = size * 2 < (size_t)300 << 20 ? size * 2 : (size_t)300 << 20;
        resize(&block, size, next, &owner);
        size = next;
    }
    while (size > 16) {
        resize(&block, size, size / 3 + 1, &owner);
        size = size / 3 + 1;
        if (size < 32)
            break;
    }
    free(block);
}

static void growth_by_steps_with_a_neighbour_in_the_way(void)
{
    char *block = (char *)malloc(40000);
    uint64_t owner = 0;
    size_t size = 40000;
    stamp_fill(block, size, owner);
    char *walls[200];
    int wall_count = 0;
    while (size < (size_t)60 << 20) {
        size_t next = size + size / 4 + 70000;
        if (wall_count < 200) {
            walls[wall_count] = (char *)malloc(50000);
            memset(walls[wall_count], wall_count, 50000);
            wall_count++;
        }
        resize(&block, size, next, &owner);
        size = next;
    }
    for (int i = 0; i < wall_count; i++) {
        for (int k = 0; k < 50000; k++)
            if (walls[i][k] != (char)i) {
                EXPECT_SAY(false, "wall %d changed at %d", i, k);
                break;
            }
        free(walls[i]);
    }
    free(block);
}

static void growth_in_room_that_was_used_before(void)
{
    for (size_t size = 65536; size <= (size_t)8 << 20; size *= 2) {
        char *block = (char *)malloc(size), *next = (char *)malloc(size);
        memset(next, 0xa5, size);
        uint64_t owner = owner_next++;
        stamp_fill(block, size, owner);
        free(next);
        resize(&block, size, size + 4096, &owner);
        resize(&block, size + 4096, size + size / 2, &owner);
        resize(&block, size + size / 2, size * 3, &owner);
        resize(&block, size * 3, size / 2, &owner);
        free(block);
    }
}

static void random_walks(void)
{
    struct random_state random = {random_seed("realloc_contents")};
    enum { COUNT = 64 };
    char *blocks[COUNT];
    size_t sizes[COUNT];
    uint64_t owners[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sizes[i] = 16;
        owners[i] = owner_next++;
        blocks[i] = (char *)malloc(16);
        stamp_fill(blocks[i], 16, owners[i]);
    }
    for (int step = 0; step < 30000; step++) {
        int i = (int)random_below(&random, COUNT);
        size_t bits = random_below(&random, 100) < 98 ? random_below(&random, 17) : random_below(&random, 24);
        size_t to = random_below(&random, (size_t)16 << bits) + 1;
        if (bits > 17 && to > (size_t)64 << 20)
            to = (size_t)64 << 20;
        resize(&blocks[i], sizes[i], to, &owners[i]);
        sizes[i] = to;
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT(stamp_check(blocks[i], sizes[i], sizes[i], owners[i]) == SIZE_MAX);
        free(blocks[i]);
    }
}

static void reallocarray_is_realloc_of_the_product(void)
{
    int *numbers = NULL;
    size_t kept = 0;
    for (size_t count = 1; count < 1u << 20; count = count * 3 / 2 + 1) {
        numbers = (int *)reallocarray(numbers, count, sizeof *numbers);
        REQUIRE(numbers != NULL);
        EXPECT(malloc_usable_size(numbers) >= count * sizeof *numbers);
        for (size_t i = 0; i < kept; i++)
            if (numbers[i] != (int)i) {
                EXPECT_SAY(false, "number %zu of %zu is %d", i, count, numbers[i]);
                break;
            }
        for (size_t i = 0; i < count; i++)
            numbers[i] = (int)i;
        kept = count;
    }
    free(numbers);
}

int main(void)
{
    RUN(byte_by_byte_up_and_down_to_3000);
    RUN(across_every_pair_of_boundaries);
    RUN(doubling_to_300_mib_and_back);
    RUN(growth_by_steps_with_a_neighbour_in_the_way);
    RUN(growth_in_room_that_was_used_before);
    RUN(random_walks);
    RUN(reallocarray_is_realloc_of_the_product);
    return EXPECT_RESULT();
}
