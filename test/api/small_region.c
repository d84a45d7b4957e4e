/* small_region.c - when the region is full, large blocks come from elsewhere, and behave like all others.
 *
 * Owns:   a child that execs itself with HAKMEM_REGION_GB=1, so that 3 GiB of (untouched) blocks do not fit.
 * Method: malloc, calloc, realloc in every direction across the border, aligned blocks, usable sizes, frees by
 *         other threads and in children, misuse of such blocks. Small blocks may fail then, but cleanly.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { COUNT = 48 };
static const size_t block_bytes = (size_t)64 << 20;
static char *blocks[COUNT];

static void *free_in_thread(void *block)
{
    free(block);
    return NULL;
}

/* A first block lies in the first chunk of 4 MiB, behind what else is there. */
static void the_region_is_used_to_its_end(void)
{
    enum { MOST = 400 };
    const size_t bytes = 70 << 16, region_bytes = (size_t)1 << 30;
    static char *block[MOST];
    uintptr_t base = 0, last = 0;
    for (int i = 0; i < MOST; i++) {
        REQUIRE((block[i] = (char *)malloc(bytes)) != NULL);
        if (i == 0)
            base = (uintptr_t)block[0] & ~(((uintptr_t)4 << 20) - 1);
        if ((uintptr_t)block[i] - base < region_bytes && (uintptr_t)block[i] + bytes > last)
            last = (uintptr_t)block[i] + bytes;
    }
    EXPECT_SAY(base + region_bytes - last < bytes, "%zu bytes are left behind the last block", base + region_bytes - last);
    for (int i = 0; i < MOST; i++)
        free(block[i]);
}

static void three_gib_are_served(void)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (char *)(i % 2 ? malloc(block_bytes) : calloc(1, block_bytes));
        REQUIRE(blocks[i] != NULL);
        EXPECT(((uintptr_t)blocks[i] & 15) == 0);
        EXPECT_SAY(malloc_usable_size(blocks[i]) >= block_bytes, "%zu", malloc_usable_size(blocks[i]));
        EXPECT(hak_usable_size(blocks[i]) == malloc_usable_size(blocks[i]));
        if (i % 2 == 0)
            EXPECT(blocks[i][0] == 0 && blocks[i][12345] == 0 && blocks[i][block_bytes - 1] == 0);
        pattern_fill(blocks[i], 0, 300, (uint64_t)i);
        pattern_fill(blocks[i], block_bytes - 300, block_bytes, (uint64_t)i);
    }
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++)
            EXPECT(i == k || blocks[i] + block_bytes <= blocks[k] || blocks[k] + block_bytes <= blocks[i]);
}

static void block_check(const char *block, size_t bytes, uint64_t owner)
{
    EXPECT(pattern_check(block, 0, bytes < 300 ? bytes : 300, owner) == (bytes < 300 ? bytes : 300));
    if (bytes >= block_bytes)
        EXPECT(pattern_check(block, block_bytes - 300, block_bytes, owner) == block_bytes);
}

static void a_shrunk_block_is_freed_by_its_new_size(void)
{
    for (size_t bytes = block_bytes; bytes > block_bytes / 2; bytes -= block_bytes / 8) {
        char *block = (char *)realloc(malloc(block_bytes), bytes);
        REQUIRE(block != NULL);
        free_sized(block, bytes);
    }
}

static void realloc_works_in_every_direction(void)
{
    static const size_t sizes[] = {100, 5000, 40000, 1u << 20, (64u << 20) - 4096, (64u << 20) + 1, 130u << 20};
    for (int i = 0; i < COUNT; i += 3)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            char *block = (char *)malloc(block_bytes);
            REQUIRE(block != NULL);
            pattern_fill(block, 0, 300, 7);
            pattern_fill(block, block_bytes - 300, block_bytes, 7);
            char *moved = (char *)realloc(block, sizes[s]);
            if (moved == NULL) { /* a small block may find no room */
                EXPECT(errno == ENOMEM);
                block_check(block, block_bytes, 7);
                free(block);
                continue;
            }
            block_check(moved, sizes[s], 7);
            EXPECT(malloc_usable_size(moved) >= sizes[s]);
            moved[sizes[s] - 1] = 1;
            moved = (char *)realloc(moved, block_bytes);
            REQUIRE(moved != NULL);
            EXPECT(pattern_check(moved, 0, 99, 7) == 99);
            EXPECT(realloc(moved, 0) == NULL);
        }
    for (int i = 0; i < COUNT; i++)
        block_check(blocks[i], block_bytes, (uint64_t)i);
}

static void alignment_and_growth_hold_there(void)
{
    for (size_t alignment = 4096; alignment <= (size_t)256 << 20; alignment *= 4) {
        char *block = (char *)memalign(alignment, block_bytes);
        REQUIRE(block != NULL);
        EXPECT(((uintptr_t)block & (alignment - 1)) == 0);
        block[0] = block[block_bytes - 1] = 1;
        size_t got = hak_expand(block, block_bytes + 100);
        EXPECT(got == 0 || got >= block_bytes + 100);
        free_aligned_sized(block, alignment, block_bytes);
    }
    struct hak_block least = hak_alloc_at_least(block_bytes + 1);
    EXPECT(least.ptr != NULL && least.bytes >= block_bytes + 1 && least.bytes == malloc_usable_size(least.ptr));
    free_sized(least.ptr, block_bytes + 1);
}

static void small_blocks_fail_cleanly_or_work(void)
{
    for (size_t size = 1; size < 200000; size += size / 3 + 1)
        for (int i = 0; i < 50; i++) {
            errno = 0;
            char *block = (char *)malloc(size);
            EXPECT(block != NULL || errno == ENOMEM);
            if (block != NULL)
                block[size - 1] = 1;
            free(block);
        }
}

static void children_and_threads_free_them(void)
{
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        for (int i = 0; i < COUNT; i++) {
            block_check(blocks[i], block_bytes, (uint64_t)i);
            free(blocks[i]);
        }
        void *block = malloc(block_bytes * 10);
        EXPECT(block != NULL);
        free(block);
        _exit(expect_failure_count != 0);
    }
    EXPECT(child_wait(child, 30) == 0);
    for (int i = 0; i < COUNT; i++) {
        block_check(blocks[i], block_bytes, (uint64_t)i);
        if (i % 3 == 0) {
            free(blocks[i]);
            continue;
        }
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, free_in_thread, blocks[i]) == 0);
        pthread_join(thread, NULL);
    }
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    EXPECT_SAY(stats.large_bytes < 1000000, "%llu bytes of large blocks live", (unsigned long long)stats.large_bytes);
}

/* Death by SIGABRT, in a child, for misuse of such a block. */
static void misuse_is_found_there(void)
{
    for (int kind = 0; kind < 4; kind++) {
        pid_t child = fork();
        if (child == 0) {
            close(2);
            for (int i = 0; i < COUNT; i++)
                blocks[i] = (char *)malloc(block_bytes);
            char *block = blocks[COUNT - 1];
            switch (kind) {
            case 0: free(block); free(block); break;
            case 1: free(block + 4096); break;
            case 2: free(block + 16); break;
            case 3: free(block); block = (char *)realloc(block, 100); break;
            }
            _exit(0);
        }
        int status = child_wait(child, 30);
        EXPECT_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "kind %d: status %#x", kind, (unsigned)status);
    }
}

int main(int argument_count, char **arguments)
{
    (void)arguments;
    if (argument_count == 1) {
        setenv("HAKMEM_REGION_GB", "1", 1);
        execl("/proc/self/exe", "small_region", "child", (char *)NULL);
        return 126;
    }
    RUN(the_region_is_used_to_its_end);
    RUN(three_gib_are_served);
    RUN(a_shrunk_block_is_freed_by_its_new_size);
    RUN(realloc_works_in_every_direction);
    RUN(alignment_and_growth_hold_there);
    RUN(small_blocks_fail_cleanly_or_work);
    RUN(children_and_threads_free_them);
    RUN(misuse_is_found_there);
    return EXPECT_RESULT();
}
