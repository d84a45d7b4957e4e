/* statistics.c - hak_stats_get is exact: per-class counts against a workload that is counted here.
 *
 * Owns:   a count of its own per usable size.
 * Method: stdio allocates behind our back, so nothing is printed between the two readings of a test.
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

static struct hak_stats before, after;

static void stats_read(struct hak_stats *stats)
{
    memset(stats, 0xee, sizeof *stats);
    hak_stats_get(stats, sizeof *stats);
}

static int class_of(size_t usable)
{
    for (uint32_t i = 0; i < before.class_count; i++)
        if (before.class_stats[i].block_bytes == usable)
            return (int)i;
    return -1;
}

static void classes_ascend_and_add_up(void)
{
    stats_read(&before);
    EXPECT(before.class_count > 60 && before.class_count <= HAK_CLASS_COUNT_MAX);
    EXPECT(before.counter_count > 10 && before.counter_count <= 64);
    uint64_t live_bytes = before.large_bytes;
    for (uint32_t i = 0; i < before.class_count; i++) {
        const struct hak_class_stats *one = &before.class_stats[i];
        EXPECT_SAY(one->live_count == one->alloc_count - one->free_count, "class %u", one->block_bytes);
        EXPECT(i == 0 || one->block_bytes > before.class_stats[i - 1].block_bytes);
        EXPECT(one->live_count == 0 || one->slab_count > 0);
        live_bytes += one->live_count * one->block_bytes;
    }
    EXPECT(before.class_stats[0].block_bytes == 16);
    EXPECT(before.class_stats[before.class_count - 1].block_bytes == 32896);
    EXPECT_SAY(live_bytes == before.live_bytes, "%llu and %llu", (unsigned long long)live_bytes, (unsigned long long)before.live_bytes);
    EXPECT(before.committed_bytes <= before.reserved_bytes);
    EXPECT(before.resident_bytes > 0);
    EXPECT(before.heap_count >= 1 && before.dead_heap_count <= before.heap_count);
}

/* A program that was built with a later version, of a longer struct. */
static void what_is_behind_is_zero(void)
{
    static union {
        struct hak_stats stats;
        unsigned char byte[sizeof(struct hak_stats) + 64];
    } longer;
    memset(&longer, 0xa5, sizeof longer);
    hak_stats_get(&longer.stats, sizeof longer);
    EXPECT(longer.stats.class_count > 60);
    for (size_t i = sizeof longer.stats; i < sizeof longer; i++)
        EXPECT_SAY(longer.byte[i] == 0, "byte %zu: %#x", i, longer.byte[i]);
}

static uint64_t allocs[HAK_CLASS_COUNT_MAX], frees[HAK_CLASS_COUNT_MAX];
static uint64_t large_count, large_bytes;

static void *counted_malloc(size_t size)
{
    void *block = malloc(size);
    size_t usable = malloc_usable_size(block);
    int class = class_of(usable);
    if (class >= 0) {
        allocs[class]++;
    } else {
        large_count++;
        large_bytes += usable;
    }
    return block;
}

static void counted_free(void *block)
{
    size_t usable = malloc_usable_size(block);
    int class = class_of(usable);
    if (class >= 0) {
        frees[class]++;
    } else {
        large_count--;
        large_bytes -= usable;
    }
    free(block);
}

static void counts_begin(void)
{
    memset(allocs, 0, sizeof allocs);
    memset(frees, 0, sizeof frees);
    large_count = large_bytes = 0;
    stats_read(&before);
}

static void counts_compare(void)
{
    stats_read(&after);
    for (uint32_t i = 0; i < before.class_count; i++) {
        uint64_t alloc_count = after.class_stats[i].alloc_count - before.class_stats[i].alloc_count;
        uint64_t free_count = after.class_stats[i].free_count - before.class_stats[i].free_count;
        EXPECT_SAY(alloc_count == allocs[i], "class %u: %llu allocs counted, %llu made", before.class_stats[i].block_bytes,
                   (unsigned long long)alloc_count, (unsigned long long)allocs[i]);
        EXPECT_SAY(free_count == frees[i], "class %u: %llu frees counted, %llu made", before.class_stats[i].block_bytes,
                   (unsigned long long)free_count, (unsigned long long)frees[i]);
    }
    EXPECT_SAY(after.large_count - before.large_count == large_count, "%lld", (long long)(after.large_count - before.large_count));
    EXPECT_SAY(after.large_bytes - before.large_bytes == large_bytes, "%lld", (long long)(after.large_bytes - before.large_bytes));
}

static void two_readings_without_work_between_are_equal(void)
{
    counts_begin();
    counts_compare();
}

static void one_block_at_a_time_is_seen(void)
{
    static const size_t sizes[] = {1, 100, 1000, 5000, 32768, 32769, 1000000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 70; i++) {
            counts_begin();
            void *block = counted_malloc(sizes[s]);
            counts_compare();
            counts_begin();
            counted_free(block);
            counts_compare();
        }
}

static void a_random_workload_is_counted_exactly(void)
{
    static struct random_state random;
    random.word = random_seed("statistics");
    static void *blocks[20000];
    counts_begin();
    for (int step = 0; step < 300000; step++) {
        size_t i = random_below(&random, 20000);
        if (blocks[i] != NULL)
            counted_free(blocks[i]);
        blocks[i] = NULL;
        if (random_below(&random, 3) != 0)
            blocks[i] = counted_malloc(random_below(&random, (size_t)32 << random_below(&random, 12)));
        if (step % 50000 == 0)
            counts_compare();
    }
    counts_compare();
    for (int i = 0; i < 20000; i++)
        if (blocks[i] != NULL)
            counted_free(blocks[i]);
    counts_compare();
}

/* Threads: they allocate, hand half of their blocks to the main thread, and end. */
struct thread_work {
    void *blocks[3000];
    uint64_t allocs[HAK_CLASS_COUNT_MAX], frees[HAK_CLASS_COUNT_MAX];
};
static void *thread_allocates(void *argument)
{
    struct thread_work *work = (struct thread_work *)argument;
    for (int i = 0; i < 3000; i++) {
        work->blocks[i] = malloc((size_t)(i % 90) * 11 + 1);
        work->allocs[class_of(malloc_usable_size(work->blocks[i]))]++;
    }
    for (int i = 0; i < 3000; i += 2) {
        work->frees[class_of(malloc_usable_size(work->blocks[i]))]++;
        free(work->blocks[i]);
    }
    return NULL;
}
static void ended_threads_and_remote_frees_are_counted(void)
{
    static struct thread_work works[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) { /* warm-up: what pthread_create itself allocates for a first thread */
        REQUIRE(pthread_create(&threads[i], NULL, thread_allocates, &works[i]) == 0);
        pthread_join(threads[i], NULL);
        for (int k = 1; k < 3000; k += 2)
            free(works[i].blocks[k]);
    }
    memset(works, 0, sizeof works);
    counts_begin();
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, thread_allocates, &works[i]) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        for (int k = 1; k < 3000; k += 2)
            counted_free(works[i].blocks[k]);
    for (uint32_t c = 0; c < before.class_count; c++)
        for (int i = 0; i < 4; i++) {
            allocs[c] += works[i].allocs[c];
            frees[c] += works[i].frees[c];
        }
    stats_read(&after);
    for (uint32_t c = 0; c < before.class_count; c++) {
        uint64_t live = after.class_stats[c].live_count - before.class_stats[c].live_count;
        uint64_t count = after.class_stats[c].alloc_count - before.class_stats[c].alloc_count;
        /* pthread_create may allocate a block or two of its own (the dtv); the blocks we made are exact. */
        EXPECT_SAY(count - allocs[c] <= 8 && live <= 8, "class %u: %llu of %llu allocs, %llu live", before.class_stats[c].block_bytes,
                   (unsigned long long)count, (unsigned long long)allocs[c], (unsigned long long)live);
    }
}

static void live_bytes_follow_what_is_held(void)
{
    stats_read(&before);
    void *blocks[1000];
    size_t held = 0;
    for (int i = 0; i < 1000; i++) {
        blocks[i] = malloc((size_t)i * 100);
        held += malloc_usable_size(blocks[i]);
    }
    stats_read(&after);
    EXPECT_SAY(after.live_bytes - before.live_bytes == held, "%llu of %zu", (unsigned long long)(after.live_bytes - before.live_bytes), held);
    for (int i = 0; i < 1000; i++)
        free(blocks[i]);
    stats_read(&after);
    EXPECT(after.live_bytes == before.live_bytes);
}

static void returned_bytes_grow_when_pages_go_back(void)
{
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = (char *)malloc(1 << 20);
        memset(blocks[i], 1, 1 << 20);
    }
    stats_read(&before);
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    hak_collect();
    stats_read(&after);
    EXPECT_SAY(after.returned_bytes - before.returned_bytes >= (uint64_t)48 << 20, "%llu",
               (unsigned long long)(after.returned_bytes - before.returned_bytes));
    EXPECT(after.resident_bytes + ((uint64_t)48 << 20) < before.resident_bytes + ((uint64_t)4 << 20));
}

static void a_child_sees_the_same_counts_and_goes_on_counting(void)
{
    static void *held[5000];
    for (int i = 0; i < 5000; i++)
        held[i] = malloc((size_t)(i % 70) * 29 + (i % 200 == 0 ? 50000u : 1u));
    stats_read(&before);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        free(malloc(3000)); /* the child's first steps */
        stats_read(&after);
        EXPECT_SAY(after.live_bytes == before.live_bytes, "%llu and %llu", (unsigned long long)after.live_bytes,
                   (unsigned long long)before.live_bytes);
        EXPECT(after.large_count == before.large_count);
        counts_begin();
        for (int i = 0; i < 5000; i++)
            counted_free(held[i]);
        for (int i = 0; i < 3000; i++)
            held[i] = counted_malloc((size_t)i * 3);
        counts_compare();
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 30);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    for (int i = 0; i < 5000; i++)
        free(held[i]);
}

static void an_older_and_a_newer_caller_get_their_part(void)
{
    struct hak_stats part;
    memset(&part, 0xee, sizeof part);
    hak_stats_get(&part, 2 * sizeof(uint64_t));
    EXPECT(part.resident_bytes != 0xeeeeeeeeeeeeeeeeu && part.reserved_bytes == 0xeeeeeeeeeeeeeeeeu);
    hak_stats_get(&part, 0);
    EXPECT(part.reserved_bytes == 0xeeeeeeeeeeeeeeeeu);
    static struct {
        struct hak_stats stats;
        char later[64];
    } longer;
    memset(&longer, 0xee, sizeof longer);
    hak_stats_get(&longer.stats, sizeof longer);
    EXPECT(longer.stats.class_count > 60);
}

int main(void)
{
    random_seed("statistics"); /* stdio's buffer is allocated before anything is counted */
    RUN(classes_ascend_and_add_up);
    RUN(what_is_behind_is_zero);
    RUN(two_readings_without_work_between_are_equal);
    RUN(one_block_at_a_time_is_seen);
    RUN(a_random_workload_is_counted_exactly);
    RUN(ended_threads_and_remote_frees_are_counted);
    RUN(live_bytes_follow_what_is_held);
    RUN(returned_bytes_grow_when_pages_go_back);
    RUN(a_child_sees_the_same_counts_and_goes_on_counting);
    RUN(an_older_and_a_newer_caller_get_their_part);
    return EXPECT_RESULT();
}
