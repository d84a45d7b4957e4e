/* thread_births.c - threads that are born and die by the thousand, whatever their first call is.
 *
 * Owns:    nothing.
 * Threads: each test starts its own and joins them (or not: detached ones).
 */
#include "expect.h"

#include <errno.h>
#include <hakmem/hakmem.h>
#include <pthread.h>
#include <stdatomic.h>

static void *work_a_little(void *argument)
{
    struct random_state random = {(uintptr_t)argument};
    char *blocks[30];
    size_t sizes[30];
    for (int i = 0; i < 30; i++) {
        sizes[i] = random_below(&random, 3000) + 1;
        blocks[i] = (char *)malloc(sizes[i]);
        stamp_fill(blocks[i], sizes[i], (uintptr_t)argument + (unsigned)i);
    }
    for (int i = 0; i < 30; i++) {
        EXPECT(stamp_check(blocks[i], sizes[i], sizes[i], (uintptr_t)argument + (unsigned)i) == SIZE_MAX);
        free(blocks[i]);
    }
    return NULL;
}

static void five_thousand_threads_one_after_the_other(void)
{
    for (uintptr_t i = 0; i < 5000; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, work_a_little, (void *)(i * 100)) == 0);
        pthread_join(thread, NULL);
    }
}

static void two_hundred_at_once_ten_times(void)
{
    enum { COUNT = 200 };
    uintptr_t count = resident_is_known() ? COUNT : COUNT / 10; /* an emulator has room for few */
    for (int round = 0; round < 10; round++) {
        pthread_t threads[COUNT];
        for (uintptr_t i = 0; i < count; i++)
            REQUIRE(pthread_create(&threads[i], NULL, work_a_little, (void *)(i * 100)) == 0);
        for (uintptr_t i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
    }
}

/* They find no chunk ready and one that the first of them is mapping: that one serves all, and not each maps its own. */
static pthread_barrier_t first_calls;
static void *first_call_at_once(void *argument)
{
    pthread_barrier_wait(&first_calls);
    work_a_little(argument);
    pthread_barrier_wait(&first_calls);
    return NULL;
}

static size_t address_space_mb(void)
{
    size_t kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    char line[200];
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmSize: %zu kB", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb >> 10;
}

static void first_calls_at_once_share_chunks(void)
{
    enum { COUNT = 200, STACK_BYTES = 256 << 10 };
    if (!resident_is_known())
        return; /* an emulator has room for few */
    pthread_t threads[COUNT];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&first_calls, NULL, COUNT + 1);
    size_t before_mb = address_space_mb();
    for (uintptr_t i = 0; i < COUNT; i++)
        REQUIRE(pthread_create(&threads[i], &attributes, first_call_at_once, (void *)(i * 100)) == 0);
    pthread_barrier_wait(&first_calls);
    pthread_barrier_wait(&first_calls);
    size_t grown_mb = address_space_mb() - before_mb;
    EXPECT_SAY(grown_mb < 2000, "%zu MB of address space", grown_mb); /* 700; 1,200 to 6,400 when each went his own way */
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&first_calls);
    pthread_attr_destroy(&attributes);
}

static atomic_int detached_done;
static void *work_detached(void *argument)
{
    work_a_little(argument);
    atomic_fetch_add(&detached_done, 1);
    return NULL;
}

static void detached_threads(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &attributes, work_detached, (void *)(uintptr_t)(i * 100)) != 0)
            sched_yield();
    }
    double end = clock_seconds() + 60;
    while (atomic_load(&detached_done) < 1000 && clock_seconds() < end)
        sched_yield();
    EXPECT(atomic_load(&detached_done) == 1000);
    pthread_attr_destroy(&attributes);
}

/* Blocks that outlive their thread, freed by another that is born later. */
static void *leave_blocks(void *argument)
{
    char **blocks = (char **)argument;
    for (int i = 0; i < 100; i++) {
        blocks[i] = (char *)malloc((size_t)i * 37 + 1);
        memset(blocks[i], i, (size_t)i * 37 + 1);
    }
    return NULL;
}
static void *check_and_free_blocks(void *argument)
{
    char **blocks = (char **)argument;
    for (int i = 0; i < 100; i++) {
        size_t size = (size_t)i * 37 + 1;
        EXPECT(blocks[i][0] == (char)i && memcmp(blocks[i], blocks[i] + 1, size - 1) == 0);
        if (i % 3 == 0)
            blocks[i] = (char *)realloc(blocks[i], size * 4);
        free(blocks[i]);
    }
    return NULL;
}
static void blocks_outlive_their_threads(void)
{
    for (int i = 0; i < 1000; i++) {
        char *blocks[100];
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, leave_blocks, blocks) == 0);
        pthread_join(thread, NULL);
        REQUIRE(pthread_create(&thread, NULL, check_and_free_blocks, blocks) == 0);
        pthread_join(thread, NULL);
    }
}

/* --- a thread whose first call is not malloc ---------------------------------------------------- */

static void *first_free(void *block) { free(block); return NULL; }
static void *first_free_null(void *block) { free(NULL); free(block); return NULL; }
static void *first_realloc(void *block) { return realloc(block, 5000); }
static void *first_realloc_large(void *block) { return realloc(block, 500000); }
static void *first_realloc_null(void *block) { free(block); return realloc(NULL, 33); }
static void *first_shrink(void *block) { return realloc(block, 8); }
static void *first_usable(void *block) { EXPECT(malloc_usable_size(block) != 0); return block; }
static void *first_calloc(void *block) { free(block); return calloc(3, 50); }
static void *first_aligned(void *block) { free(block); return aligned_alloc(4096, 50); }
static void *first_large(void *block) { free(block); return malloc(1 << 20); }
static void *first_refused(void *block) { EXPECT(malloc(SIZE_MAX) == NULL); return block; }
static void *first_trim(void *block) { malloc_trim(0); return block; }

static void the_first_call_of_a_thread_may_be_any(void)
{
    static void *(*const firsts[])(void *) = {first_free, first_free_null, first_realloc, first_realloc_large, first_realloc_null,
                                              first_shrink, first_usable, first_calloc, first_aligned, first_large,
                                              first_refused, first_trim};
    static const size_t sizes[] = {0, 16, 100, 1024, 5000, 32768, 100000, 2000000};
    for (int round = 0; round < 10; round++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                pthread_t thread;
                void *result = NULL;
                void *block = malloc(sizes[s]);
                REQUIRE(pthread_create(&thread, NULL, firsts[f], block) == 0);
                pthread_join(thread, &result);
                free(result);
            }
}

/* --- a thread that never allocates ---------------------------------------------------------------
 *
 * One that frees much gathers what it frees, as those do that allocate, and has a heap for that: without it each block is a word of its
 * owner's fetched. One that frees what it was started with needs none, or it would hold pages for nothing. */

enum { FREED = 4000 };
static uint64_t heaps_live(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.heap_count - stats.dead_heap_count;
}
static void *only_frees(void *argument)
{
    void **blocks = (void **)argument;
    errno = 77;
    for (int i = 0; i < FREED; i++) free(blocks[i]);
    EXPECT(errno == 77);
    return (void *)(uintptr_t)heaps_live();
}
static void a_thread_that_only_frees_gathers_what_it_frees(void)
{
    static void *blocks[FREED];
    for (int i = 0; i < FREED; i++) REQUIRE((blocks[i] = malloc((size_t)i % 500)) != NULL);
    uint64_t before = heaps_live();
    pthread_t thread;
    void *during;
    REQUIRE(pthread_create(&thread, NULL, only_frees, blocks) == 0);
    pthread_join(thread, &during);
    EXPECT_SAY((uintptr_t)during == before + 1, "%llu, then %llu", (unsigned long long)before, (unsigned long long)(uintptr_t)during);
    EXPECT(heaps_live() == before);
}

/* --- a thread that frees what one that ended left it, and allocates: it takes over that heap, not the one that was left last --- */

enum { LEFT = 300, LINES = 3, ONES = 16 };
static pthread_barrier_t all_have_heaps;
struct line { void *blocks[LEFT], *ones[ONES]; pthread_mutex_t may_end; int is_reverse; };
static void *leave_to_a_successor(void *argument)
{
    struct line *line = (struct line *)argument;
    for (int i = 0; i < LEFT; i++) REQUIRE((line->blocks[i] = malloc((size_t)i * 37 % 6000 + 1)) != NULL);
    for (int i = 0; i < ONES; i++) REQUIRE((line->ones[i] = malloc(100)) != NULL);
    pthread_barrier_wait(&all_have_heaps);
    pthread_mutex_lock(&line->may_end); /* they end one after the other */
    pthread_mutex_unlock(&line->may_end);
    return NULL;
}
static long long strangers_frees(void)
{
    static char text[1 << 16];
    hak_stats_json(text, sizeof text);
    const char *counter = strstr(text, "\"free_stranger\":");
    REQUIRE(counter);
    return atoll(strchr(counter, ':') + 1);
}
static void *succeed(void *argument)
{
    struct line *line = (struct line *)argument;
    long long before = strangers_frees();
    for (int n = 0; n < LEFT; n++) {
        int i = line->is_reverse ? LEFT - 1 - n : n; /* a block of 5,064 bytes is the first, or one of 1 */
        free(line->blocks[i]);
        REQUIRE((line->blocks[i] = malloc((size_t)i * 37 % 6000 + 1)) != NULL);
    }
    /* A stranger would free all of them as one. A slab of another line's heap, which has no thread meanwhile, may have come into this one: its blocks
     * are a few (28 once in some hundred runs beside others). */
    EXPECT_SAY(strangers_frees() - before < LEFT / 4, "%lld of %d", strangers_frees() - before, LEFT);
    return NULL;
}
static void *free_one(void *block)
{
    uint64_t before = heaps_live();
    free(block);
    return (void *)(uintptr_t)(heaps_live() - before); /* all that it does may be to wait from here on */
}
static void a_successor_is_no_stranger(void)
{
    static struct line lines[LINES];
    pthread_t threads[LINES], thread;
    pthread_barrier_init(&all_have_heaps, NULL, LINES + 1);
    for (int i = 0; i < LINES; i++) {
        pthread_mutex_init(&lines[i].may_end, NULL);
        pthread_mutex_lock(&lines[i].may_end);
        REQUIRE(pthread_create(&threads[i], NULL, leave_to_a_successor, &lines[i]) == 0);
    }
    pthread_barrier_wait(&all_have_heaps);
    for (int i = 0; i < LINES; i++) {
        pthread_mutex_unlock(&lines[i].may_end);
        pthread_join(threads[i], NULL);
    }
    uintptr_t with_heap = 0;
    for (int i = 0; i < ONES; i++) {
        void *more = NULL;
        REQUIRE(pthread_create(&thread, NULL, free_one, lines[0].ones[i]) == 0);
        pthread_join(thread, &more);
        with_heap += (uintptr_t)more;
    }
    EXPECT_SAY(with_heap <= ONES / 2, "%d of %d", (int)with_heap, ONES); /* one in 16, by its address */
    for (int generation = 0; generation < 3; generation++)
        for (int i = 0; i < LINES; i++) { /* whose heap is the lowest first, then as it was left */
            lines[i].is_reverse = generation % 2;
            REQUIRE(pthread_create(&thread, NULL, succeed, &lines[i]) == 0);
            pthread_join(thread, NULL);
        }
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k < LEFT + (i > 0 ? ONES : 0); k++) free(k < LEFT ? lines[i].blocks[k] : lines[i].ones[k - LEFT]);
    pthread_barrier_destroy(&all_have_heaps);
}

/* Memory that threads leave behind is used again: 3,000 threads of 1 MiB each do not need 3 GB. */
static void *touch_a_mib(void *unused)
{
    (void)unused;
    for (int i = 0; i < 16; i++) {
        void *block = malloc(65000);
        memset(block, 1, 65000);
        free(block);
        block = malloc(600);
        memset(block, 1, 600);
        free(block);
    }
    return NULL;
}
static void memory_of_dead_threads_is_used_again(void)
{
    long before = resident_kib();
    for (int i = 0; i < 3000; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, touch_a_mib, NULL) == 0);
        pthread_join(thread, NULL);
    }
    long after = resident_kib();
    EXPECT_SAY(!resident_is_known() || after - before < 64 * 1024, "%ld KiB grew to %ld", before, after);
}

int main(void)
{
    RUN(first_calls_at_once_share_chunks); /* the first of all */
    RUN(five_thousand_threads_one_after_the_other);
    RUN(two_hundred_at_once_ten_times);
    RUN(detached_threads);
    RUN(blocks_outlive_their_threads);
    RUN(the_first_call_of_a_thread_may_be_any);
    RUN(a_thread_that_only_frees_gathers_what_it_frees);
    RUN(a_successor_is_no_stranger);
    RUN(memory_of_dead_threads_is_used_again);
    return EXPECT_RESULT();
}
