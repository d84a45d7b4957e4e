/* limits.c - sizes that cannot be: every entry point fails with NULL and ENOMEM, and touches nothing.
 *
 * Owns:   nothing.
 * Source: glibc's tst-malloc-too-large, tst-reallocarray, tst-calloc; malloc(3).
 */
#include "expect.h"

static const size_t sizes_too_large[] = {
    (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX + 2, (size_t)PTRDIFF_MAX + 4096, SIZE_MAX / 2 + 65536,
    SIZE_MAX - 65536, SIZE_MAX - 4096, SIZE_MAX - 4095, SIZE_MAX - 64, SIZE_MAX - 32, SIZE_MAX - 17,
    SIZE_MAX - 16, SIZE_MAX - 15, SIZE_MAX - 14, SIZE_MAX - 8, SIZE_MAX - 1, SIZE_MAX,
};
enum { SIZE_COUNT = sizeof sizes_too_large / sizeof *sizes_too_large };

/* Evaluates `call`, a call that returns a pointer, and wants NULL with ENOMEM. */
#define FAILS(call)                                                                          \
    do {                                                                                     \
        errno = 0;                                                                           \
        void *result = (call);                                                               \
        EXPECT_SAY(result == NULL, "%s gave %p for %#zx", #call, result, size);              \
        EXPECT_SAY(errno == ENOMEM, "%s set errno %d for %#zx", #call, errno, size);         \
    } while (0)

static void every_entry_point_refuses_sizes_above_ptrdiff_max(void)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        size_t size = sizes_too_large[i];
        FAILS(malloc(size));
        FAILS(calloc(1, size));
        FAILS(calloc(size, 1));
        FAILS(realloc(NULL, size));
        FAILS(reallocarray(NULL, size, 1));
        FAILS(reallocarray(NULL, 1, size));
        FAILS(valloc(size));
        FAILS(pvalloc(size));
        for (size_t alignment = 8; alignment != 0; alignment *= 2) { /* to 2^63, where a sum with the size wraps */
            FAILS(memalign(alignment, size));
            FAILS(aligned_alloc(alignment, size));
            void *untouched = &untouched;
            errno = 12345;
            int error = posix_memalign(&untouched, alignment, size);
            EXPECT_SAY(error == ENOMEM, "posix_memalign(%zu, %#zx) returned %d", alignment, size, error);
            EXPECT(untouched == &untouched);
        }
    }
}

static void realloc_that_fails_leaves_the_block_alone(void)
{
    static const size_t held[] = {0, 1, 16, 100, 1024, 5000, 32768, 40000, 100000, 5u << 20};
    for (size_t h = 0; h < sizeof held / sizeof *held; h++) {
        char *block = (char *)malloc(held[h]);
        REQUIRE(block != NULL);
        stamp_fill(block, held[h], h);
        for (int i = 0; i < SIZE_COUNT; i++) {
            size_t size = sizes_too_large[i];
            FAILS(realloc(block, size));
            FAILS(reallocarray(block, size, 1));
            FAILS(reallocarray(block, 1, size));
            FAILS(reallocarray(block, size, 16));
        }
        EXPECT(stamp_check(block, held[h], held[h], h) == SIZE_MAX);
        EXPECT(malloc_usable_size(block) >= held[h]);
        free(block);
    }
}

static void products_that_overflow_fail(void)
{
    static const size_t factors[] = {2, 3, 5, 16, 24, 255, 4096, 65537, (size_t)1 << 31, (size_t)1 << 32,
                                     ((size_t)1 << 32) + 1, (size_t)1 << 33, SIZE_MAX / 3, SIZE_MAX / 2, SIZE_MAX};
    void *block = malloc(40);
    memset(block, 0x5a, 40);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        for (size_t step = 0; step < 4; step++) {
            size_t one = factors[i], size = SIZE_MAX / one + 1 + step, product;
            if (!__builtin_mul_overflow(one, size, &product))
                continue;
            FAILS(calloc(one, size));
            FAILS(calloc(size, one));
            FAILS(reallocarray(NULL, one, size));
            FAILS(reallocarray(NULL, size, one));
            FAILS(reallocarray(block, one, size));
            FAILS(reallocarray(block, size, one));
        }
    for (int i = 0; i < 40; i++)
        EXPECT(((unsigned char *)block)[i] == 0x5a);
    free(block);
}

static void products_between_ptrdiff_max_and_size_max_fail(void)
{
    for (unsigned shift = 1; shift < 63; shift++) {
        size_t one = (size_t)1 << shift, size = (size_t)1 << (63 - shift);
        FAILS(calloc(one, size));
        FAILS(reallocarray(NULL, one, size));
        FAILS(calloc(one, 2 * size - 1));
    }
}

static void sizes_the_machine_cannot_hold_fail(void)
{
    /* Below PTRDIFF_MAX, but above any user address space of 47 bits. */
    for (unsigned bits = 48; bits < 63; bits++) {
        size_t size = (size_t)1 << bits;
        FAILS(malloc(size));
        FAILS(malloc(size - 1));
        FAILS(calloc(size, 1));
        FAILS(realloc(NULL, size));
        FAILS(memalign(64, size));
        FAILS(memalign(1u << 20, size));
        FAILS(valloc(size));
        FAILS(pvalloc(size));
    }
    size_t size = PTRDIFF_MAX;
    FAILS(malloc(size));
    FAILS(calloc(1, size));
    FAILS(pvalloc(size));
    FAILS(memalign(4096, size));
}

static void allocation_works_as_before_after_failures(void)
{
    for (size_t size = 1; size < (size_t)8 << 20; size += size / 3 + 1) {
        char *block = (char *)malloc(size);
        REQUIRE(block != NULL);
        block[0] = block[size - 1] = 1;
        free(block);
    }
}

int main(void)
{
    RUN(every_entry_point_refuses_sizes_above_ptrdiff_max);
    RUN(realloc_that_fails_leaves_the_block_alone);
    RUN(products_that_overflow_fail);
    RUN(products_between_ptrdiff_max_and_size_max_fail);
    RUN(sizes_the_machine_cannot_hold_fail);
    RUN(allocation_works_as_before_after_failures);
    return EXPECT_RESULT();
}
