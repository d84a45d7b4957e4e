/* calloc_zero.c - calloc gives zeros, whatever was in the memory before.
 *
 * Owns:   nothing.
 * Method: blocks are filled whole with 0xa5, freed (so that the next allocation meets dirty memory), and
 *         asked for again by calloc, at the same size and at others.
 *
 * ctest: timeout=300 secure
 */
#include "expect.h"

static bool bytes_are_zero(const void *block, size_t bytes)
{
    const char *at = (const char *)block;
    return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

static void dirty_and_free(size_t size, int count)
{
    static void *blocks[512];
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(size);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 0xa5, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < count; i++)
        free(blocks[i]);
}

/* What calloc promises: `size` bytes; glibc clears no more of a block, and neither must we. */
static void calloc_and_check(size_t count, size_t size, int block_count)
{
    static void *blocks[512];
    for (int i = 0; i < block_count; i++) {
        blocks[i] = calloc(count, size);
        REQUIRE(blocks[i] != NULL);
        EXPECT_SAY(bytes_are_zero(blocks[i], count * size), "calloc(%zu, %zu)", count, size);
        memset(blocks[i], 0x5a, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < block_count; i++)
        free(blocks[i]);
}

static void small_sizes_after_dirty_reuse(void)
{
    for (size_t size = 1; size <= 33000; size += size < 1100 ? 1 : 97) {
        int count = size < 1100 ? 100 : 20;
        dirty_and_free(size, count);
        calloc_and_check(1, size, count);
        calloc_and_check(size, 1, count);
    }
}

static void large_sizes_after_dirty_reuse(void)
{
    for (size_t size = 32768; size <= (size_t)64 << 20; size += size / 3 + 4097) {
        int count = size < (size_t)4 << 20 ? 4 : 1;
        dirty_and_free(size, count);
        calloc_and_check(1, size, count);
        calloc_and_check(size / 8, 8, count);
    }
}

static void parts_of_a_larger_dirty_block(void)
{
    dirty_and_free((size_t)64 << 20, 1);
    for (size_t size = (size_t)32 << 20; size > 10000; size = size / 2 + 5000) {
        calloc_and_check(1, size, 2);
        if (size / 2 + 5000 >= size)
            break;
    }
    dirty_and_free((size_t)3 << 20, 8);
    calloc_and_check(1, 40000, 300);
    calloc_and_check(1, (size_t)20 << 20, 1);
}

static void larger_blocks_made_of_dirty_neighbours(void)
{
    for (size_t size = 40000; size <= (size_t)2 << 20; size *= 3) {
        dirty_and_free(size, 40);
        calloc_and_check(1, size * 20, 1);
        calloc_and_check(1, size * 7, 3);
    }
}

static void after_a_shrink_in_place(void)
{
    for (size_t size = 100000; size <= (size_t)32 << 20; size *= 4) {
        char *block = (char *)malloc(size);
        memset(block, 0xa5, size);
        block = (char *)realloc(block, size / 2);
        calloc_and_check(1, size / 2, 2);
        calloc_and_check(1, size / 4, 2);
        free(block);
    }
}

static void after_growth_in_place_and_moved_pages(void)
{
    for (size_t size = 100000; size <= (size_t)32 << 20; size *= 3) {
        char *block = (char *)malloc(size);
        for (int i = 0; i < 4; i++) {
            memset(block, 0xa5, size << i);
            block = (char *)realloc(block, size << (i + 1));
        }
        memset(block, 0xa5, size << 4);
        free(block);
        calloc_and_check(1, size << 4, 1);
        calloc_and_check(1, size << 3, 2);
        calloc_and_check(1, size, 12);
    }
}

static void after_memory_went_back_to_the_kernel(void)
{
    for (size_t size = 64; size <= (size_t)16 << 20; size *= 4) {
        dirty_and_free(size, 64);
        malloc_trim(0);
        calloc_and_check(1, size, 64);
    }
}

static void zero_of_an_aligned_dirty_block(void)
{
    for (size_t alignment = 64; alignment <= (size_t)2 << 20; alignment *= 2) {
        void *block = memalign(alignment, alignment + 100);
        memset(block, 0xa5, malloc_usable_size(block));
        free(block);
        calloc_and_check(1, alignment + 100, 3);
        calloc_and_check(alignment / 16, 16, 3);
    }
}

int main(void)
{
    RUN(small_sizes_after_dirty_reuse);
    RUN(large_sizes_after_dirty_reuse);
    RUN(parts_of_a_larger_dirty_block);
    RUN(larger_blocks_made_of_dirty_neighbours);
    RUN(after_a_shrink_in_place);
    RUN(after_growth_in_place_and_moved_pages);
    RUN(after_memory_went_back_to_the_kernel);
    RUN(zero_of_an_aligned_dirty_block);
    return EXPECT_RESULT();
}
