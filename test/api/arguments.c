/* arguments.c - what each entry point does with zero, NULL and bad alignments, as glibc documents it.
 *
 * Owns:   nothing.
 * Source: glibc's tst-posix_memalign, tst-memalign, tst-valloc, tst-pvalloc, tst-realloc; posix_memalign(3);
 *         aligned_alloc's check of the alignment is glibc 2.38's (ISO C17 wants it).
 * ctest: secure
 */
#include "expect.h"

#include <hakmem/hakmem.h>

static bool ptr_is_aligned(const void *ptr, size_t alignment)
{
    return ((uintptr_t)ptr & (alignment - 1)) == 0;
}

static void posix_memalign_refuses_bad_alignments(void)
{
    static const size_t bad[] = {0,  1,  2,  3,  4,  5,   6,   7,    9,    10,   12,   15,       17,          24,
                                 31, 33, 40, 48, 63, 100, 127, 1000, 4095, 4097, 6144, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t size = 0; size < 3; size++) {
            void *untouched = &untouched;
            errno = 4711;
            int error = posix_memalign(&untouched, bad[i], size * 50);
            EXPECT_SAY(error == EINVAL, "alignment %zu gave %d", bad[i], error);
            EXPECT(untouched == &untouched);
            EXPECT(errno == 4711);
        }
}

static void posix_memalign_accepts_powers_of_two_from_8(void)
{
    static const size_t sizes[] = {0, 1, 7, 8, 16, 100, 4096, 40000, 300000};
    for (size_t alignment = 8; alignment <= (size_t)256 << 20; alignment *= 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *block = NULL;
            errno = 4711;
            int error = posix_memalign(&block, alignment, sizes[i]);
            EXPECT_SAY(error == 0 && block != NULL, "alignment %zu, size %zu: %d", alignment, sizes[i], error);
            EXPECT(errno == 4711);
            if (error != 0)
                continue;
            EXPECT_SAY(ptr_is_aligned(block, alignment), "%p for alignment %zu", block, alignment);
            EXPECT(malloc_usable_size(block) >= sizes[i]);
            stamp_fill(block, sizes[i], alignment);
            EXPECT(stamp_check(block, sizes[i], sizes[i], alignment) == SIZE_MAX);
            free(block);
        }
}

static void aligned_alloc_refuses_what_is_no_power_of_two(void)
{
    static const size_t bad[] = {0, 3, 5, 6, 7, 12, 24, 48, 100, 4095, 4097, SIZE_MAX, SIZE_MAX / 2 + 2};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        void *block = aligned_alloc(bad[i], 64);
        EXPECT_SAY(block == NULL, "alignment %zu", bad[i]);
        EXPECT_SAY(errno == EINVAL, "alignment %zu set errno %d", bad[i], errno);
    }
}

static void aligned_alloc_accepts_any_size(void)
{
    for (size_t alignment = 1; alignment <= 1u << 20; alignment *= 2)
        for (size_t size = 0; size < 200; size += 13) {
            char *block = (char *)aligned_alloc(alignment, size);
            EXPECT(block != NULL);
            EXPECT(ptr_is_aligned(block, alignment) && ptr_is_aligned(block, 16));
            memset(block, 1, size);
            free(block);
        }
}

static void memalign_rounds_alignments_up(void)
{
    for (size_t alignment = 0; alignment < 5000; alignment += alignment < 70 ? 1 : 61) {
        size_t power = 16;
        while (power < alignment)
            power *= 2;
        char *block = (char *)memalign(alignment, 100);
        EXPECT_SAY(block != NULL, "alignment %zu", alignment);
        EXPECT_SAY(ptr_is_aligned(block, power), "%p for %zu", (void *)block, alignment);
        memset(block, 1, 100);
        free(block);
    }
    errno = 0;
    EXPECT(memalign(SIZE_MAX / 2 + 2, 16) == NULL);
    EXPECT(errno == EINVAL);
    errno = 0;
    EXPECT(memalign(SIZE_MAX, 16) == NULL);
    EXPECT(errno == EINVAL);
    errno = 0;
    EXPECT(memalign(SIZE_MAX / 2 + 1, 16) == NULL); /* a power of two, but no machine has room */
    EXPECT(errno == ENOMEM);
}

static void valloc_and_pvalloc_give_pages(void)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 0; size < 3 * page_bytes; size += 511) {
        char *block = (char *)valloc(size);
        EXPECT(block != NULL && ptr_is_aligned(block, page_bytes));
        EXPECT(malloc_usable_size(block) >= size);
        memset(block, 1, size);
        char *whole = (char *)pvalloc(size);
        size_t rounded = (size + page_bytes - 1) / page_bytes * page_bytes;
        EXPECT(whole != NULL && ptr_is_aligned(whole, page_bytes));
        EXPECT_SAY(malloc_usable_size(whole) >= rounded, "pvalloc(%zu) has %zu", size, malloc_usable_size(whole));
        memset(whole, 2, rounded);
        free(block);
        free(whole);
    }
}

static void zero_bytes_are_blocks_of_their_own(void)
{
    enum { COUNT = 3000 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        switch (i % 6) {
        case 0: blocks[i] = malloc(0); break;
        case 1: blocks[i] = calloc(0, 8); break;
        case 2: blocks[i] = calloc(8, 0); break;
        case 3: blocks[i] = realloc(NULL, 0); break;
        case 4: blocks[i] = reallocarray(NULL, 0, 8); break;
        case 5: blocks[i] = memalign(16, 0); break;
        }
        EXPECT(blocks[i] != NULL && ptr_is_aligned(blocks[i], 16));
        memset(blocks[i], i & 127, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < malloc_usable_size(blocks[i]); k++)
            if (((char *)blocks[i])[k] != (i & 127)) {
                EXPECT_SAY(false, "block %d is shared", i);
                break;
            }
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
}

static void realloc_of_null_allocates(void)
{
    for (size_t size = 0; size < 2u << 20; size += size / 5 + 1) {
        char *block = (char *)realloc(NULL, size);
        EXPECT(block != NULL && malloc_usable_size(block) >= size);
        memset(block, 3, size);
        free(block);
        block = (char *)reallocarray(NULL, size, 1);
        EXPECT(block != NULL && malloc_usable_size(block) >= size);
        free(block);
    }
}

static void realloc_to_zero_frees_and_gives_null(void)
{
    for (size_t size = 0; size < 2u << 20; size += size / 2 + 1)
        for (int repeat = 0; repeat < 200; repeat++) {
            void *block = malloc(size);
            errno = 4711;
            EXPECT(realloc(block, 0) == NULL);
            EXPECT(errno == 4711); /* glibc's tst-realloc: not an error */
            block = malloc(size);
            EXPECT(reallocarray(block, 0, 8) == NULL);
            block = malloc(size);
            EXPECT(reallocarray(block, 8, 0) == NULL);
        }
}

static void realloc_to_zero_keeps_no_memory(void)
{
    /* 20,000 blocks of 1 MiB: were they kept, the address space of any limit below would end. */
    for (int i = 0; i < 20000; i++) {
        void *block = malloc(1u << 20);
        REQUIRE(block != NULL);
        EXPECT(realloc(block, 0) == NULL);
    }
}

static void null_is_free_already(void)
{
    errno = 4711;
    free(NULL);
    EXPECT(malloc_usable_size(NULL) == 0);
    EXPECT(errno == 4711);
}

static void the_versions_agree(void)
{
    EXPECT(strcmp(hak_version(), HAKMEM_VERSION) == 0);
}

int main(void)
{
    RUN(null_is_free_already);
    RUN(posix_memalign_refuses_bad_alignments);
    RUN(posix_memalign_accepts_powers_of_two_from_8);
    RUN(aligned_alloc_refuses_what_is_no_power_of_two);
    RUN(aligned_alloc_accepts_any_size);
    RUN(memalign_rounds_alignments_up);
    RUN(valloc_and_pvalloc_give_pages);
    RUN(zero_bytes_are_blocks_of_their_own);
    RUN(realloc_of_null_allocates);
    RUN(realloc_to_zero_frees_and_gives_null);
    RUN(realloc_to_zero_keeps_no_memory);
    RUN(the_versions_agree);
    return EXPECT_RESULT();
}
