/* errno_kept.c - free and what succeeds keep errno; only failures set it.
 *
 * Owns:   nothing.
 * Source: POSIX 2024 on free; glibc's tst-free-errno. Large blocks matter: their free may enter the kernel.
 * ctest: secure
 */
#include "expect.h"

#include <pthread.h>
#include <sys/mman.h>

enum { MARK = 4711 };

static void free_keeps_errno_for_every_size(void)
{
    for (size_t size = 0; size <= (size_t)256 << 20; size += size / 2 + 1) {
        char *block = (char *)malloc(size);
        REQUIRE(block != NULL);
        if (size != 0)
            block[0] = block[size - 1] = 1;
        errno = MARK;
        free(block);
        EXPECT_SAY(errno == MARK, "errno %d after free of %zu bytes", errno, size);
    }
}

static void free_keeps_errno_for_many_blocks_in_any_order(void)
{
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    struct random_state random = {random_seed("errno_kept")};
    for (int i = 0; i < COUNT; i++)
        blocks[i] = malloc(random_below(&random, i % 100 == 0 ? 200000 : 2000));
    for (int i = COUNT - 1; i > 0; i--) {
        int k = (int)random_below(&random, (size_t)i + 1);
        void *swap = blocks[i];
        blocks[i] = blocks[k];
        blocks[k] = swap;
    }
    for (int i = 0; i < COUNT; i++) {
        errno = MARK;
        free(blocks[i]);
        EXPECT(errno == MARK);
    }
}

static void *free_in_another_thread(void *block)
{
    errno = MARK;
    free(block);
    EXPECT(errno == MARK);
    return NULL;
}

static void free_of_another_threads_block_keeps_errno(void)
{
    for (size_t size = 1; size < (size_t)32 << 20; size = size * 3 + 1) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, free_in_another_thread, malloc(size)) == 0);
        pthread_join(thread, NULL);
    }
}

static void success_keeps_errno(void)
{
    for (size_t size = 1; size <= (size_t)64 << 20; size += size / 2 + 1) {
        errno = MARK;
        void *block = malloc(size);
        EXPECT_SAY(errno == MARK, "malloc(%zu) set %d", size, errno);
        block = realloc(block, size + size / 3 + 1);
        EXPECT_SAY(errno == MARK, "realloc from %zu set %d", size, errno);
        void *zeros = calloc(1, size);
        EXPECT_SAY(errno == MARK, "calloc(1, %zu) set %d", size, errno);
        void *aligned = memalign(4096, size);
        EXPECT_SAY(errno == MARK, "memalign(4096, %zu) set %d", size, errno);
        EXPECT(block != NULL && zeros != NULL && aligned != NULL);
        malloc_usable_size(block);
        free(block);
        free(zeros);
        free(aligned);
        EXPECT(errno == MARK);
    }
    malloc_trim(0);
}

/* The kernel refuses munmap and madvise on pages locked or split to the limit of maps; free must not tell. */
static void free_keeps_errno_when_the_kernel_may_refuse(void)
{
    enum { COUNT = 64 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc((size_t)1 << 20);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 1, (size_t)1 << 20);
        (void)mlock((char *)blocks[i] + 65536, 8192);
    }
    for (int i = 0; i < COUNT; i++) {
        munlock((char *)blocks[i] + 65536, 4096); /* the second page stays locked */
        errno = MARK;
        free(blocks[i]);
        EXPECT(errno == MARK);
    }
    void *again = calloc(1, (size_t)8 << 20);
    for (size_t i = 0; i < (size_t)8 << 20; i += 512)
        if (((char *)again)[i] != 0) {
            EXPECT_SAY(false, "calloc after locked pages is dirty at %zu", i);
            break;
        }
    free(again);
}

int main(void)
{
    RUN(free_keeps_errno_for_every_size);
    RUN(free_keeps_errno_for_many_blocks_in_any_order);
    RUN(free_of_another_threads_block_keeps_errno);
    RUN(success_keeps_errno);
    RUN(free_keeps_errno_when_the_kernel_may_refuse);
    return EXPECT_RESULT();
}
