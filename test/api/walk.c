/* walk.c - hak_walk shows each block that the program holds once, with its usable bytes, and none that is free.
 *
 * Owns:   a table of what the test holds, and one of what it freed, in no block; what others hold (libc's own) was there before, or is the
 *         thread library's.
 * Method: everything runs again while samples are taken, while they are guarded, and with a window so small that large blocks lie outside.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>
#include <setjmp.h>

enum { MOST = 400000, LARGE = 32896 };
struct mine {
    char *ptr;
    size_t bytes;
    uint32_t seen, is_free;
};
static struct mine mine[MOST];
static size_t mine_count;
static bool is_guarded, is_small_window;

static void mine_add(void *block)
{
    REQUIRE(block != NULL && mine_count < MOST);
    mine[mine_count++] = (struct mine){(char *)block, malloc_usable_size(block), 0, 0};
}

static void mine_free(size_t i)
{
    if (!mine[i].is_free)
        free(mine[i].ptr);
    mine[i].is_free = 1;
}

static int by_place(const void *a, const void *b)
{
    const struct mine *x = (const struct mine *)a, *y = (const struct mine *)b;
    if (x->ptr != y->ptr)
        return x->ptr < y->ptr ? -1 : 1;
    return (int)y->is_free - (int)x->is_free; /* a place that was freed and handed out again: what it is now comes last */
}

/* qsort of glibc may allocate. */
static void mine_sort(void)
{
    for (size_t gap = mine_count / 2; gap > 0; gap /= 2)
        for (size_t i = gap; i < mine_count; i++) {
            struct mine moved = mine[i];
            size_t at = i;
            for (; at >= gap && by_place(&mine[at - gap], &moved) > 0; at -= gap)
                mine[at] = mine[at - gap];
            mine[at] = moved;
        }
    size_t kept = 0;
    for (size_t i = 0; i < mine_count; i++) {
        if (kept > 0 && mine[kept - 1].ptr == mine[i].ptr)
            kept--;
        mine[kept++] = mine[i];
    }
    mine_count = kept;
}

static struct mine *mine_at(const void *ptr)
{
    size_t low = 0, high = mine_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (mine[middle].ptr < (const char *)ptr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < mine_count && mine[low].ptr == ptr ? &mine[low] : NULL;
}

struct sums {
    uint64_t count, bytes, foreign_count, guarded_count, apart_bytes; /* what hak_stats.live_bytes has otherwise */
};

static int look(const struct hak_held *held, void *context)
{
    struct sums *sums = (struct sums *)context;
    struct mine *one = mine_at(held->ptr);
    sums->count++;
    sums->bytes += held->bytes;
    sums->guarded_count += held->guarded;
    EXPECT(((uintptr_t)held->ptr & 15) == 0 && held->large <= 1 && held->guarded <= 1);
    EXPECT_SAY(held->large == (held->bytes > LARGE), "%zu bytes, large %u", held->bytes, held->large);
    EXPECT(!held->guarded || is_guarded);
    if (!one) {
        sums->foreign_count++;
        return 0;
    }
    EXPECT_SAY(!one->is_free, "%p of %zu bytes is free", held->ptr, one->bytes);
    EXPECT_SAY(one->seen == 0, "%p of %zu bytes again", held->ptr, one->bytes);
    EXPECT_SAY(held->bytes == one->bytes, "%p: %zu bytes, not %zu", held->ptr, held->bytes, one->bytes);
    one->seen++;
    return 0;
}

static void all_mine_are_shown(struct sums *sums)
{
    static struct hak_stats stats;
    mine_sort();
    for (size_t i = 0; i < mine_count; i++)
        mine[i].seen = 0;
    memset(sums, 0, sizeof *sums);
    EXPECT(hak_walk(look, sums) == 0);
    for (size_t i = 0; i < mine_count; i++)
        EXPECT_SAY(mine[i].seen + mine[i].is_free == 1, "%p of %zu bytes was not shown", (void *)mine[i].ptr, mine[i].bytes);
    hak_stats_get(&stats, sizeof stats);
    if (!is_guarded && !is_small_window)
        EXPECT_SAY(sums->bytes == stats.live_bytes, "%llu, not %llu", (unsigned long long)sums->bytes, (unsigned long long)stats.live_bytes);
}

static void all_go(void)
{
    for (size_t i = 0; i < mine_count; i++)
        mine_free(i);
    mine_count = 0;
}

static void every_size_and_alignment_is_shown(void)
{
    struct sums before, after;
    all_mine_are_shown(&before);
    for (size_t bytes = 1; bytes <= 40000; bytes += bytes < 2000 ? 7 : 251)
        mine_add(malloc(bytes));
    for (size_t bytes = 100000; bytes < 40000000; bytes = bytes * 3 / 2)
        mine_add(malloc(bytes));
    for (size_t align = 32; align <= 1 << 20; align *= 2)
        for (size_t bytes = 24; bytes < 300000; bytes *= 5)
            mine_add(memalign(align, bytes));
    for (int i = 0; i < 500; i++)
        mine_add(realloc(calloc(1, (size_t)i * 30 + 1), (size_t)i * 90 + 1));
    for (size_t i = 0; i < mine_count; i++)
        EXPECT(mine[i].bytes > 0);
    size_t count = mine_count;
    all_mine_are_shown(&after);
    EXPECT_SAY(after.count - before.count == count && mine_count == count, "%llu for %zu", (unsigned long long)(after.count - before.count), count);
    for (size_t i = 0; i < mine_count; i += 3)
        mine_free(i);
    all_mine_are_shown(&after);
    all_go();
    all_mine_are_shown(&after);
    EXPECT(after.count == before.count && after.bytes == before.bytes);
}

static void what_a_thread_is_about_to_take_again_is_not_shown(void)
{
    struct sums sums;
    static const size_t sizes[] = {16, 100, 1000, 1500, 5000, 20000, 40000, 300000, 1000000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int i = 0; i < 40; i++) {
            mine_add(malloc(sizes[s]));
            mine_add(malloc(sizes[s]));
            mine_free(mine_count - 2); /* into the row, the kept blocks, the kept spans */
            all_mine_are_shown(&sums);
        }
    for (size_t i = 0; i < mine_count; i++)
        mine_free(i);
    all_mine_are_shown(&sums);
    mine_count = 0;
}

static void a_random_workload_is_shown_exactly(void)
{
    struct random_state random = {random_seed("walk")};
    struct sums sums;
    for (int step = 0; step < 60000; step++) {
        if (mine_count > 0 && random_below(&random, 5) < 2) {
            size_t i = random_below(&random, mine_count);
            mine_free(i);
            mine[i] = mine[--mine_count]; /* its place may be another's */
        } else {
            mine_add(malloc(random_below(&random, (size_t)32 << random_below(&random, 12))));
        }
        if (step % 5000 == 0)
            all_mine_are_shown(&sums);
    }
    all_mine_are_shown(&sums);
    all_go();
}

/* --- threads --- */

enum { THREADS = 4, EACH = 6000 };
static pthread_barrier_t barrier, barrier_of_other;
static void *of_thread[THREADS][EACH];

static void *allocates(void *argument)
{
    void **blocks = (void **)argument;
    for (int i = 0; i < EACH; i++)
        blocks[i] = malloc((size_t)(i % 90) * (i % 97 == 0 ? 1000 : 17) + 1);
    for (int i = 0; i < EACH; i += 4) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    pthread_barrier_wait(&barrier); /* they are freed by others, and lie in letters and batches */
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void *frees(void *argument)
{
    for (int t = 0; t < THREADS; t++)
        for (size_t i = (uintptr_t)argument; i < EACH; i += 4 + i % 3) {
            free(of_thread[t][i]);
            of_thread[t][i] = NULL;
        }
    pthread_barrier_wait(&barrier_of_other);
    pthread_barrier_wait(&barrier_of_other);
    return NULL;
}

static void mine_are_the_threads(const struct mine *freed, size_t freed_count)
{
    struct sums sums;
    mine_count = 0;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++)
            if (of_thread[t][i])
                mine_add(of_thread[t][i]);
    for (size_t i = 0; i < freed_count; i++)
        mine[mine_count++] = freed[i];
    all_mine_are_shown(&sums);
    mine_count = 0;
}

static void blocks_of_threads_are_shown_whoever_frees_them(void)
{
    static struct mine freed[THREADS * EACH];
    static void *were[THREADS][EACH];
    pthread_t threads[THREADS], other;
    REQUIRE(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int t = 0; t < THREADS; t++)
        REQUIRE(pthread_create(&threads[t], NULL, allocates, of_thread[t]) == 0);
    pthread_barrier_wait(&barrier);
    mine_are_the_threads(NULL, 0);
    memcpy(were, of_thread, sizeof were);
    REQUIRE(pthread_barrier_init(&barrier_of_other, NULL, 2) == 0);
    REQUIRE(pthread_create(&other, NULL, frees, (void *)1) == 0);
    pthread_barrier_wait(&barrier_of_other);
    for (int t = 0; t < THREADS; t++)
        for (int i = 2; i < EACH; i += 5) { /* and by this thread */
            free(of_thread[t][i]);
            of_thread[t][i] = NULL;
        }
    size_t freed_count = 0;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++)
            if (were[t][i] && !of_thread[t][i])
                freed[freed_count++] = (struct mine){(char *)were[t][i], 0, 0, 1};
    EXPECT(freed_count > EACH);
    mine_are_the_threads(freed, freed_count);
    pthread_barrier_wait(&barrier_of_other);
    pthread_join(other, NULL);
    mine_are_the_threads(freed, freed_count);
    pthread_barrier_wait(&barrier);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    mine_are_the_threads(freed, freed_count);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++) {
            free(of_thread[t][i]);
            if (of_thread[t][i])
                freed[freed_count++] = (struct mine){(char *)of_thread[t][i], 0, 0, 1};
            of_thread[t][i] = NULL;
        }
    mine_are_the_threads(freed, freed_count);
}

static void a_child_is_shown_what_it_has(void)
{
    struct sums sums;
    for (int i = 0; i < 5000; i++)
        mine_add(malloc((size_t)(i % 70) * 29 + (i % 200 == 0 ? 50000u : 1u)));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        all_mine_are_shown(&sums);
        for (size_t i = 0; i < mine_count; i += 2)
            mine_free(i);
        all_mine_are_shown(&sums);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    all_go();
}

/* --- the function that is called --- */

static int stops(const struct hak_held *held, void *context)
{
    (void)held;
    return --*(int *)context == 0 ? 7 : 0;
}

static void another_number_than_0_ends_it(void)
{
    struct sums sums;
    for (int i = 0; i < 1000; i++)
        mine_add(malloc((size_t)i * 60));
    all_mine_are_shown(&sums);
    for (int after = 1; after <= (int)sums.count; after += after < 1200 ? 1 : 100) {
        int left = after;
        EXPECT_SAY(hak_walk(stops, &left) == 7 && left == 0, "%d", left);
    }
    int left = (int)sums.count + 1;
    EXPECT_SAY(hak_walk(stops, &left) == 0 && left == 1, "%d", left);
    all_go();
}

static int walks_on(const struct hak_held *held, void *context)
{
    struct sums *sums = (struct sums *)context;
    struct mine *one = mine_at(held->ptr);
    void *blocks[3];
    for (size_t i = 0; i < 3; i++)
        blocks[i] = malloc((size_t)1 << (4 + (sums->count + i) % 14));
    if (one && !one->is_free) {
        one->seen++;
        if (one->bytes % 3 == 0)
            mine_free((size_t)(one - mine));
    }
    for (size_t i = 0; i < 3; i++)
        free(blocks[i]);
    sums->count++;
    return sums->count > 1000000;
}

static void it_may_allocate_and_free(void)
{
    struct sums sums;
    for (int i = 0; i < 20000; i++)
        mine_add(malloc((size_t)(i % 300) * (i % 50 == 0 ? 300 : 11) + 1));
    all_mine_are_shown(&sums);
    memset(&sums, 0, sizeof sums);
    for (size_t i = 0; i < mine_count; i++)
        mine[i].seen = 0;
    EXPECT(hak_walk(walks_on, &sums) == 0);
    for (size_t i = 0; i < mine_count; i++)
        EXPECT_SAY(mine[i].seen == 1, "%u times", mine[i].seen);
    all_mine_are_shown(&sums);
    all_go();
}

static jmp_buf away;
static int leaves(const struct hak_held *held, void *context)
{
    (void)held;
    if (--*(int *)context == 0)
        longjmp(away, 1);
    return 0;
}

static void it_may_be_left(void)
{
    struct sums sums;
    for (int i = 0; i < 3000; i++)
        mine_add(malloc((size_t)(i % 100) * 13));
    for (int volatile after = 1; after < 3000; after += 100) {
        int left = after;
        if (setjmp(away) == 0)
            hak_walk(leaves, &left);
    }
    all_mine_are_shown(&sums);
    for (size_t i = 0; i < mine_count; i += 2)
        mine_free(i);
    all_mine_are_shown(&sums);
    all_go();
}

static void it_never_allocates(void)
{
    static struct hak_stats before, after;
    struct sums sums;
    hak_stats_get(&before, sizeof before);
    for (int i = 0; i < 20; i++)
        hak_walk(look, &sums);
    hak_stats_get(&after, sizeof after);
    for (uint32_t i = 0; i < after.class_count; i++)
        EXPECT(after.class_stats[i].alloc_count == before.class_stats[i].alloc_count);
}

/* --- again, in other ways --- */

static void guarded_blocks_are_shown_as_such(void)
{
    struct sums sums;
    for (int i = 0; i < 20000; i++)
        mine_add(malloc((size_t)(i % 3000) + 1));
    all_mine_are_shown(&sums);
    EXPECT_SAY(sums.guarded_count > 4, "%llu", (unsigned long long)sums.guarded_count);
    all_go();
}

static void blocks_outside_the_window_are_shown(void)
{
    struct sums before, after;
    all_mine_are_shown(&before);
    for (int i = 0; i < 8; i++)
        mine_add(malloc((size_t)600 << 20));
    all_mine_are_shown(&after);
    EXPECT(after.count == before.count + 8 && after.bytes == before.bytes + 8 * ((uint64_t)600 << 20));
    mine_free(3);
    mine_free(5);
    all_mine_are_shown(&after);
    EXPECT(after.count == before.count + 6);
    all_go();
}

static void run_all(void)
{
    RUN(every_size_and_alignment_is_shown);
    RUN(what_a_thread_is_about_to_take_again_is_not_shown);
    RUN(a_random_workload_is_shown_exactly);
    RUN(blocks_of_threads_are_shown_whoever_frees_them);
    RUN(a_child_is_shown_what_it_has);
    RUN(another_number_than_0_ends_it);
    RUN(it_may_allocate_and_free);
    RUN(it_may_be_left);
    RUN(it_never_allocates);
}

int main(int argc, char **argv)
{
    static char *const ways[][4] = {
        {"sampled", "HAKMEM_RECORD=/dev/null", "HAKMEM_SAMPLE_BYTES=512", NULL},
        {"guarded", "HAKMEM_GUARD=8", "HAKMEM_SAMPLE_BYTES=512", NULL},
        {"outside", "HAKMEM_REGION_GB=1", NULL, NULL},
    };
    if (argc > 1) {
        is_guarded = strcmp(argv[1], "guarded") == 0;
        is_small_window = strcmp(argv[1], "outside") == 0;
        run_all();
        if (is_guarded)
            RUN(guarded_blocks_are_shown_as_such);
        if (is_small_window)
            RUN(blocks_outside_the_window_are_shown);
        return EXPECT_RESULT();
    }
    run_all();
    fflush(stdout);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t child = fork();
        if (child == 0) {
            putenv(ways[i][1]);
            if (ways[i][2])
                putenv(ways[i][2]);
            execl("/proc/self/exe", argv[0], ways[i][0], (char *)NULL);
            _exit(126);
        }
        int status = child_wait(child, 100);
        EXPECT_SAY(status == 0, "%s: status %#x", ways[i][0], (unsigned)status);
    }
    return EXPECT_RESULT();
}
