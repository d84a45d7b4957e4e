/* recorded_threads.c - more threads than the table of threads has rows: what is temporary is known of the last one, too.
 *
 * Owns:      itself, started again with a sample for every 64 bytes.
 * Threads:   one after another, each on a stack of its own: who gets an older one's stack and heap, and has its name, shares its row.
 *
 * ctest: native
 */
#include "recorded.h"

enum { THREADS = 2100 };

struct sums {
    uint64_t freed, temporary;
};

static struct sums sums_now(void)
{
    struct sums sums = { 0, 0 };
    for (uint64_t i = 0; i < hakmem_published.stacks.used; i++) {
        const struct hak_stack_row *row = recorded_stack(i);
        sums.freed += row->free_count;
        sums.temporary += row->temporary_count;
    }
    return sums;
}

static void the_last_of_many_threads_has_temporary_blocks(void)
{
    char *stacks = recorded_stacks(THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        recorded_thread_run(stacks, i);
    EXPECT_SAY(hakmem_published.threads.used == hakmem_published.threads.capacity && hakmem_published.lost_threads > 0, "%llu rows of %llu",
               (unsigned long long)hakmem_published.threads.used, (unsigned long long)hakmem_published.threads.capacity);
    struct sums before = sums_now();
    recorded_thread_run(stacks, THREADS);
    struct sums after = sums_now();
    uint64_t freed = after.freed - before.freed, temporary = after.temporary - before.temporary;
    EXPECT_SAY(freed > RECORDED_BLOCKS / 2 * HAK_COUNT_UNIT && temporary > freed / 10 * 9, "%llu of %llu freed blocks are temporary",
               (unsigned long long)(temporary / HAK_COUNT_UNIT), (unsigned long long)(freed / HAK_COUNT_UNIT));
}

static void *held[RECORDED_BLOCKS];
static void *blocks_come(void *unused)
{
    (void)unused;
    for (int i = 0; i < RECORDED_BLOCKS; i++)
        held[i] = malloc(64);
    return NULL;
}
static void *blocks_go(void *unused)
{
    (void)unused;
    for (int i = RECORDED_BLOCKS; i-- > 0;)
        free(held[i]);
    return NULL;
}

/* Each on the stack, and with the heap, of the one before: the thread pointer is the same, the thread is not. */
static void what_another_thread_frees_is_not_temporary(void)
{
    char *stack = recorded_stacks(1);
    struct sums before = sums_now();
    for (int turn = 0; turn < 10; turn++) {
        recorded_thread_on(stack, blocks_come);
        recorded_thread_on(stack, blocks_go);
    }
    struct sums after = sums_now();
    /* what this thread allocates and frees for each of them is temporary */
    EXPECT_SAY(after.freed - before.freed > 5 * RECORDED_BLOCKS * HAK_COUNT_UNIT && after.temporary - before.temporary < RECORDED_BLOCKS / 4 * HAK_COUNT_UNIT,
               "%llu of %llu freed blocks are temporary", (unsigned long long)((after.temporary - before.temporary) / HAK_COUNT_UNIT),
               (unsigned long long)((after.freed - before.freed) / HAK_COUNT_UNIT));
}

int main(int count, char **words)
{
    (void)count;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    recorded_from_the_start(words);
    RUN(what_another_thread_frees_is_not_temporary);
    RUN(the_last_of_many_threads_has_temporary_blocks);
    return EXPECT_RESULT();
}
