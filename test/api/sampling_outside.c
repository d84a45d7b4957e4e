/* sampling_outside.c - large blocks are samples wherever they lie, and until they are freed.
 *
 * Owns:   itself, started again with HAKMEM_REGION_GB=1, so that most of 48 blocks of 64 MiB lie outside the window, and a
 *         rate at which each of them is a sample.
 *
 * ctest: native secure
 */
#include "recorded.h"

enum { COUNT = 48 };
static const size_t block_bytes = (size_t)64 << 20;
static char *blocks[COUNT];

static unsigned live_of(const void *block)
{
    unsigned found = 0;
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) {
        const struct hak_live_row *row = recorded_live(i);
        found += row->state == 1 && row->block == (uintptr_t)block;
    }
    return found;
}

static uint64_t requested_of(const void *block)
{
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) {
        const struct hak_live_row *row = recorded_live(i);
        if (row->state == 1 && row->block == (uintptr_t)block)
            return row->requested_bytes;
    }
    return 0;
}

/* Whoever records is told of each byte, though nothing has to be done for it. */
static void one_that_stays_on_its_last_page_has_its_new_size(void)
{
    char *block = (char *)malloc(block_bytes);
    REQUIRE(block != NULL);
    EXPECT(requested_of(block) == block_bytes);
    char *same = (char *)realloc(block, block_bytes - 100);
    EXPECT(same == block);
    EXPECT_SAY(requested_of(same) == block_bytes - 100, "%llu", (unsigned long long)requested_of(same));
    free(same);
    EXPECT(live_of(same) == 0);
}

static void *free_in_thread(void *block)
{
    free(block);
    return NULL;
}

static void each_is_a_sample_until_its_end(void)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (char *)(i % 2 ? malloc(block_bytes) : calloc(1, block_bytes));
        REQUIRE(blocks[i] != NULL);
    }
    for (int i = 0; i < COUNT; i++)
        EXPECT_SAY(live_of(blocks[i]) == 1, "block %d: %u", i, live_of(blocks[i]));
    uint64_t freed = hakmem_published.samples_freed;
    for (int i = 0; i < COUNT; i++) {
        pthread_t thread;
        if (i % 3 == 0) {
            blocks[i] = (char *)realloc(blocks[i], 100); /* a copy, and a free */
            free(blocks[i]);
        } else if (i % 3 == 1) {
            free(blocks[i]);
        } else {
            REQUIRE(pthread_create(&thread, NULL, free_in_thread, blocks[i]) == 0);
            pthread_join(thread, NULL);
        }
        EXPECT_SAY(live_of(blocks[i]) == 0, "block %d", i);
    }
    EXPECT_SAY(hakmem_published.samples_freed - freed >= COUNT, "%llu", (unsigned long long)(hakmem_published.samples_freed - freed));
}

static void ends_are_seen_after_the_recording(void)
{
    char *block = (char *)malloc(block_bytes);
    EXPECT(live_of(block) == 1);
    hakmem_published.control.command = HAK_CONTROL_STOP;
    __atomic_store_n(&hakmem_published.control.request, hakmem_published.control.seen + 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 20000 && hakmem_published.control.seen != hakmem_published.control.request; i++) {
        free(malloc((size_t)i * 16 % 4096 + 40000));
        usleep(100);
    }
    EXPECT(hakmem_published.rate_bytes == 0);
    EXPECT(hakmem_published.recorded_rate_bytes >= 1048576); /* of what the tables hold */
    for (int i = 0; i < 100; i++)
        free(malloc(100000));
    EXPECT(live_of(block) == 1);
    free(block);
    EXPECT(live_of(block) == 0);
    char *other = (char *)malloc(block_bytes);
    EXPECT(live_of(other) == 0); /* nobody samples any more */
    free(other);
}

/* What is asked for is counted also where nobody samples; a few such requests are more than 64 bits. */
static void requests_without_end_are_refused(void)
{
    for (int i = 0; i < 9; i++) {
        errno = 0;
        EXPECT(malloc((size_t)PTRDIFF_MAX - 4096) == NULL && errno == ENOMEM);
        char *block = (char *)malloc(100000);
        EXPECT(block != NULL);
        free(block);
    }
}

int main(int count, char **words)
{
    (void)count;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    RUN(requests_without_end_are_refused);
    if (!getenv("HAKMEM_REGION_GB")) {
        if (expect_failure_count != 0)
            return 1;
        setenv("HAKMEM_REGION_GB", "1", 1);
        setenv("HAKMEM_RECORD", "/dev/null", 1);
        setenv("HAKMEM_SAMPLE_BYTES", "1048576", 1);
        execv("/proc/self/exe", words);
        return 1;
    }
    RUN(one_that_stays_on_its_last_page_has_its_new_size);
    RUN(each_is_a_sample_until_its_end);
    RUN(ends_are_seen_after_the_recording);
    return expect_failure_count != 0;
}
