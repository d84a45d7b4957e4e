/* recorded_threads.c - more threads than the table of threads has rows: what is temporary is known of the last one, too.
 *
 * Owns:      itself, started again with a sample for every 64 bytes.
 * Threads:   one after another, each on a stack of its own: who gets an older one's stack and heap is taken for that one.
 *
 * ctest: native
 */
#include "expect.h"

#include "../../src/watch/published.h"

#include <pthread.h>
#include <sys/mman.h>

extern struct hak_published hakmem_published __attribute__((weak));

enum { THREADS = 2100, BLOCKS = 400, STACK_BYTES = 128 << 10 };

struct sums {
    uint64_t freed, temporary;
};

static struct sums sums_now(void)
{
    struct sums sums = { 0, 0 };
    for (uint64_t i = 0; i < hakmem_published.stacks.used; i++) {
        const struct hak_stack_row *row = (const void *)(uintptr_t)(hakmem_published.stacks.address + i * hakmem_published.stacks.row_bytes);
        sums.freed += row->free_count;
        sums.temporary += row->temporary_count;
    }
    return sums;
}

static void *blocks_come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; i < BLOCKS; i++)
        free(malloc(64));
    return NULL;
}

static void thread_run(char *stack)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    REQUIRE(pthread_create(&thread, &attributes, blocks_come_and_go, NULL) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void the_last_of_many_threads_has_temporary_blocks(void)
{
    char *stacks = (char *)mmap(NULL, (size_t)(THREADS + 1) * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(stacks != (char *)MAP_FAILED);
    for (size_t i = 0; i < THREADS; i++)
        thread_run(stacks + i * STACK_BYTES);
    EXPECT_SAY(hakmem_published.threads.used == hakmem_published.threads.capacity && hakmem_published.lost_threads > 0, "%llu rows of %llu",
               (unsigned long long)hakmem_published.threads.used, (unsigned long long)hakmem_published.threads.capacity);
    struct sums before = sums_now();
    thread_run(stacks + (size_t)THREADS * STACK_BYTES);
    struct sums after = sums_now();
    uint64_t freed = after.freed - before.freed, temporary = after.temporary - before.temporary;
    EXPECT_SAY(freed > BLOCKS / 2 * HAK_COUNT_UNIT && temporary > freed / 10 * 9, "%llu of %llu freed blocks are temporary",
               (unsigned long long)(temporary / HAK_COUNT_UNIT), (unsigned long long)(freed / HAK_COUNT_UNIT));
}

int main(int count, char **words)
{
    (void)count;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    if (!getenv("HAKMEM_SAMPLE_BYTES")) {
        setenv("HAKMEM_RECORD", "/dev/null", 1);
        setenv("HAKMEM_SAMPLE_BYTES", "64", 1);
        setenv("HAKMEM_SAMPLE_MOST", "0", 1);
        execv("/proc/self/exe", words);
        return 1;
    }
    RUN(the_last_of_many_threads_has_temporary_blocks);
    return EXPECT_RESULT();
}
