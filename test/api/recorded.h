/* recorded.h - what the tests of recording share: the tables and the control word of this very process, as another process has them.
 *
 * Borrows: src/watch/published.h, for the layout; nothing of the library is called by it.
 */
#ifndef HAK_TEST_RECORDED_H
#define HAK_TEST_RECORDED_H

#include "expect.h"

#include "../../src/watch/published.h"

#include <pthread.h>
#include <sys/mman.h>

extern struct hak_published hakmem_published __attribute__((weak));

/* This program once more, recorded from its start with a sample for every 64 bytes; returns if it is that already. */
EXPECT_UNUSED static void recorded_from_the_start(char **words)
{
    if (getenv("HAKMEM_SAMPLE_BYTES"))
        return;
    setenv("HAKMEM_RECORD", "/dev/null", 1);
    setenv("HAKMEM_SAMPLE_BYTES", "64", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    execv("/proc/self/exe", words);
    _exit(1);
}

/* Slow paths, on which requests are taken. */
EXPECT_UNUSED static void recorded_visits(void)
{
    void *blocks[500];
    for (int i = 0; i < 500; i++)
        blocks[i] = malloc(500 + 2 * (size_t)i);
    for (int i = 0; i < 500; i++)
        free(blocks[i]);
}

/* A request as `hakmem record -p` makes it; its number. */
EXPECT_UNUSED static uint32_t recorded_request(uint32_t command, uint64_t rate_bytes)
{
    struct hak_control *control = &hakmem_published.control;
    control->command = command;
    control->rate_bytes = rate_bytes;
    uint32_t request = control->seen + 1;
    __atomic_store_n(&control->request, request, __ATOMIC_RELEASE);
    return request;
}

/* The same, and waits for it: its result. This thread follows the new rate. */
EXPECT_UNUSED static int recorded_asked(uint32_t command, uint64_t rate_bytes)
{
    enum { SECONDS_MAX = 20 };
    uint32_t request = recorded_request(command, rate_bytes);
    for (double until = clock_seconds() + SECONDS_MAX; __atomic_load_n(&hakmem_published.control.seen, __ATOMIC_ACQUIRE) != request;) {
        if (clock_seconds() > until)
            return -ETIMEDOUT;
        recorded_visits();
    }
    for (int i = 0; i < 20; i++)
        recorded_visits();
    return hakmem_published.control.result;
}

EXPECT_UNUSED static const struct hak_stack_row *recorded_stack(uint64_t number)
{
    return (const void *)(uintptr_t)(hakmem_published.stacks.address + number * hakmem_published.stacks.row_bytes);
}

EXPECT_UNUSED static const struct hak_live_row *recorded_live(uint64_t number)
{
    return (const void *)(uintptr_t)(hakmem_published.live.address + number * hakmem_published.live.row_bytes);
}

/* Threads one after another, each on a stack of its own: who gets an older one's stack and heap, and has its name, shares its row. */
enum { RECORDED_STACK_BYTES = 128 << 10, RECORDED_BLOCKS = 400 };
EXPECT_UNUSED static char *recorded_stacks(size_t count)
{
    char *stacks = (char *)mmap(NULL, count * RECORDED_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(stacks != (char *)MAP_FAILED);
    return stacks;
}
EXPECT_UNUSED static void *recorded_blocks_come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; i < RECORDED_BLOCKS; i++)
        free(malloc(64));
    return NULL;
}
EXPECT_UNUSED static void recorded_thread_on(char *stack, void *(*body)(void *))
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstack(&attributes, stack, RECORDED_STACK_BYTES) == 0);
    REQUIRE(pthread_create(&thread, &attributes, body, NULL) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}
EXPECT_UNUSED static void recorded_thread_run(char *stacks, size_t number)
{
    recorded_thread_on(stacks + number * RECORDED_STACK_BYTES, recorded_blocks_come_and_go);
}

#endif
