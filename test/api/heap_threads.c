/* heap_threads.c - a heap and its blocks, used, freed and ended by any thread.
 *
 * Threads: take turns by barriers, so that what each finds is certain.
 * ctest: secure
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { MANY = 2000 };

static struct hak_heap_stats stats_of(hak_heap_t *heap)
{
    struct hak_heap_stats stats;
    hak_heap_stats_get(heap, &stats, sizeof stats);
    return stats;
}

static size_t size_at(int i) { return (size_t)(i % 60) * (i % 200 == 0 ? 2000 : 41) + 1; }

/* --- one thread that does what it is told --- */

struct worker {
    pthread_t thread;
    pthread_barrier_t barrier;
    void (*work)(struct worker *worker); /* NULL: ends */
    hak_heap_t *heap;
    void **blocks;
    int count;
};

static void *worker_main(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    for (;;) {
        pthread_barrier_wait(&worker->barrier);
        if (!worker->work)
            return NULL;
        worker->work(worker);
        pthread_barrier_wait(&worker->barrier);
    }
}

static void worker_start(struct worker *worker)
{
    REQUIRE(pthread_barrier_init(&worker->barrier, NULL, 2) == 0);
    REQUIRE(pthread_create(&worker->thread, NULL, worker_main, worker) == 0);
}

static void worker_do(struct worker *worker, void (*work)(struct worker *), hak_heap_t *heap, void **blocks, int count)
{
    worker->work = work;
    worker->heap = heap;
    worker->blocks = blocks;
    worker->count = count;
    pthread_barrier_wait(&worker->barrier);
    if (work)
        pthread_barrier_wait(&worker->barrier);
    else
        pthread_join(worker->thread, NULL);
}

static void allocates(struct worker *worker)
{
    for (int i = 0; i < worker->count; i++) {
        worker->blocks[i] = hak_heap_malloc(worker->heap, size_at(i));
        REQUIRE(worker->blocks[i]);
        memset(worker->blocks[i], 3, size_at(i));
    }
}

static void frees(struct worker *worker)
{
    for (int i = 0; i < worker->count; i++) {
        free(worker->blocks[i]);
        worker->blocks[i] = NULL;
    }
}

static void frees_a_third(struct worker *worker)
{
    for (int i = 0; i < worker->count; i += 3) {
        free(worker->blocks[i]);
        worker->blocks[i] = NULL;
    }
}

/* Ordinary blocks come and go, so that it makes all its visits and chores. */
static void lives_on(struct worker *worker)
{
    static const size_t sizes[] = {16, 100, 1000, 3000, 20000, 100000};
    (void)worker;
    for (int i = 0; i < 60000; i++)
        free(malloc(sizes[i % 6]));
    void *many[300];
    for (int i = 0; i < 300; i++)
        many[i] = malloc(sizes[i % 4]);
    for (int i = 0; i < 300; i++)
        free(many[i]);
}

/* --- what they show --- */

static void *blocks[MANY], *others[MANY];

static void any_thread_allocates_and_frees(void)
{
    struct worker one = {0}, two = {0};
    hak_heap_t *heap = hak_heap_new(0);
    worker_start(&one);
    worker_start(&two);
    for (int round = 0; round < 5; round++) {
        worker_do(&one, allocates, heap, blocks, MANY);
        worker_do(&two, allocates, heap, others, MANY);
        EXPECT(stats_of(heap).live_count == 2 * MANY);
        for (int i = 0; i < MANY; i++)
            EXPECT(hak_heap_of(blocks[i]) == heap && hak_heap_of(others[i]) == heap);
        worker_do(&two, frees, heap, blocks, MANY);
        EXPECT(stats_of(heap).live_count == MANY);
        worker_do(&one, frees, heap, others, MANY / 2);
        EXPECT(stats_of(heap).live_count == MANY - MANY / 2);
        worker_do(&two, frees, heap, others + MANY / 2, MANY - MANY / 2);
        EXPECT(stats_of(heap).live_count == 0);
    }
    worker_do(&one, NULL, NULL, NULL, 0);
    worker_do(&two, NULL, NULL, NULL, 0);
    hak_heap_destroy(heap);
}

/* What `two` freed lies in its batches while this thread clears, and comes back after. */
static void frees_that_are_under_way_do_no_harm(void (*end)(hak_heap_t *), bool goes_on)
{
    struct worker one = {0}, two = {0};
    worker_start(&one);
    worker_start(&two);
    hak_heap_t *heap = hak_heap_new(0);
    for (int round = 0; round < 20; round++) {
        worker_do(&one, allocates, heap, blocks, MANY);
        worker_do(&two, allocates, heap, others, MANY);
        worker_do(&two, frees_a_third, heap, blocks, MANY);
        if (round % 2)
            frees_a_third(&(struct worker){.blocks = others, .count = MANY});
        end(heap);
        if (!goes_on)
            heap = hak_heap_new(0);
        struct hak_heap_stats stats = stats_of(heap);
        EXPECT_SAY(stats.live_count == 0, "%llu", (unsigned long long)stats.live_count);
        if (end == hak_heap_delete) {
            frees(&(struct worker){.blocks = blocks, .count = MANY});
            frees(&(struct worker){.blocks = others, .count = MANY});
        }
        if (round % 4 == 1)
            worker_do(&two, lives_on, heap, NULL, 0);
        if (round % 4 == 2)
            allocates(&(struct worker){.heap = heap, .blocks = blocks, .count = MANY});
        if (round % 4 == 3)
            worker_do(&one, lives_on, heap, NULL, 0);
    }
    hak_heap_clear(heap);
    worker_do(&two, lives_on, heap, NULL, 0);
    worker_do(&one, NULL, NULL, NULL, 0);
    worker_do(&two, NULL, NULL, NULL, 0);
    hak_collect();
    EXPECT_SAY(stats_of(heap).taken_bytes == 0, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    hak_heap_destroy(heap);
}

static void clear_with_frees_under_way(void) { frees_that_are_under_way_do_no_harm(hak_heap_clear, true); }
static void destroy_with_frees_under_way(void) { frees_that_are_under_way_do_no_harm(hak_heap_destroy, false); }
static void delete_with_frees_under_way(void) { frees_that_are_under_way_do_no_harm(hak_heap_delete, false); }

static uint64_t heap_count(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.heap_count;
}

static void a_thread_takes_over_what_another_left(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    uint64_t before = 0;
    for (int round = 0; round < 30; round++) {
        struct worker worker = {0};
        worker_start(&worker);
        worker_do(&worker, allocates, heap, blocks, MANY);
        if (round % 2)
            worker_do(&worker, frees, heap, blocks, MANY);
        worker_do(&worker, NULL, NULL, NULL, 0);
        if (round % 2 == 0)
            frees(&(struct worker){.blocks = blocks, .count = MANY});
        if (round == 2)
            before = heap_count();
    }
    EXPECT_SAY(heap_count() <= before, "%llu heaps, then %llu", (unsigned long long)before, (unsigned long long)heap_count());
    hak_collect();
    EXPECT_SAY(stats_of(heap).live_count == 0 && stats_of(heap).taken_bytes == 0, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    hak_heap_destroy(heap);
}

static void mallocs(struct worker *worker)
{
    for (int i = 0; i < worker->count; i++) {
        worker->blocks[i] = malloc(size_at(i));
        EXPECT(hak_heap_of(worker->blocks[i]) == NULL);
    }
}

static void ordinary_malloc_never_has_what_was_left(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    struct worker worker = {0};
    worker_start(&worker);
    worker_do(&worker, allocates, heap, blocks, MANY);
    worker_do(&worker, frees_a_third, heap, blocks, MANY);
    worker_do(&worker, NULL, NULL, NULL, 0);
    uint64_t left = stats_of(heap).live_count;
    EXPECT(left == MANY - (MANY + 2) / 3);
    for (int round = 0; round < 4; round++) {
        worker_start(&worker);
        worker_do(&worker, mallocs, NULL, others, MANY);
        EXPECT(stats_of(heap).live_count == left);
        worker_do(&worker, round % 2 ? frees : lives_on, NULL, others, MANY);
        worker_do(&worker, NULL, NULL, NULL, 0);
        if (round % 2 == 0)
            frees(&(struct worker){.blocks = others, .count = MANY});
    }
    hak_heap_destroy(heap);
}

static void *frees_only(void *argument)
{
    for (int i = 0; i < MANY; i++)
        free(((void **)argument)[i]);
    return NULL;
}

static void a_thread_that_only_frees_is_no_successor(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    struct worker worker = {0};
    pthread_t thread;
    worker_start(&worker);
    worker_do(&worker, allocates, heap, blocks, MANY);
    worker_do(&worker, NULL, NULL, NULL, 0);
    REQUIRE(pthread_create(&thread, NULL, frees_only, blocks) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(stats_of(heap).live_count == 0);
    hak_collect();
    EXPECT(stats_of(heap).taken_bytes == 0);
    hak_heap_destroy(heap);
}

/* --- in a destructor, after the library's own --- */

static pthread_key_t key;
static hak_heap_t *heap_of_destructor;
static void *late[8];
static int rounds;

static void destructor(void *value)
{
    if (++rounds < 3) {
        pthread_setspecific(key, value);
        return;
    }
    for (int i = 0; i < 8; i++) {
        late[i] = hak_heap_malloc(heap_of_destructor, i < 6 ? 100 : 100000);
        EXPECT(late[i] && hak_heap_of(late[i]) == heap_of_destructor);
    }
    free(late[0]);
    hak_heap_t *another = hak_heap_new(0);
    late[0] = hak_heap_malloc(another, 100);
    hak_heap_delete(another);
    EXPECT(hak_heap_of(late[0]) == NULL);
    free(late[0]);
}

static void *dies(void *unused)
{
    free(malloc(10));
    pthread_setspecific(key, &key);
    return unused;
}

static void a_thread_past_its_end_allocates(void)
{
    pthread_t thread;
    heap_of_destructor = hak_heap_new(0);
    REQUIRE(pthread_key_create(&key, destructor) == 0);
    REQUIRE(pthread_create(&thread, NULL, dies, NULL) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(rounds == 3 && stats_of(heap_of_destructor).live_count == 7);
    hak_heap_destroy(heap_of_destructor);
}

/* --- while a thread ends --- */

static void *uses_and_ends(void *argument)
{
    void **mine = (void **)argument;
    for (int i = 0; i < 50; i++)
        mine[i] = hak_heap_malloc(heap_of_destructor, size_at(i));
    mine[50] = malloc(1000);
    __atomic_store_n((int *)&mine[51], 1, __ATOMIC_RELEASE);
    free(mine[50]);
    return NULL; /* its end and the heap's come together */
}

static void a_heap_is_cleared_while_a_thread_that_used_it_ends(void)
{
    for (int round = 0; round < 300; round++) {
        enum { THREADS = 3 };
        static void *of_thread[THREADS][52];
        pthread_t threads[THREADS];
        heap_of_destructor = hak_heap_new(0);
        for (int t = 0; t < THREADS; t++) {
            *(int *)&of_thread[t][51] = 0;
            REQUIRE(pthread_create(&threads[t], NULL, uses_and_ends, of_thread[t]) == 0);
        }
        for (int t = 0; t < THREADS; t++)
            while (!__atomic_load_n((int *)&of_thread[t][51], __ATOMIC_ACQUIRE))
                sched_yield();
        if (round % 3)
            hak_heap_clear(heap_of_destructor);
        struct hak_heap_stats stats = stats_of(heap_of_destructor);
        /* what an ending thread just puts back may be shown as if it were held */
        EXPECT_SAY(round % 3 ? stats.live_count == 0 : stats.live_count >= THREADS * 50, "%llu", (unsigned long long)stats.live_count);
        hak_heap_destroy(heap_of_destructor);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
    }
}

int main(void)
{
    RUN(any_thread_allocates_and_frees);
    RUN(clear_with_frees_under_way);
    RUN(destroy_with_frees_under_way);
    RUN(delete_with_frees_under_way);
    RUN(a_thread_takes_over_what_another_left);
    RUN(ordinary_malloc_never_has_what_was_left);
    RUN(a_thread_that_only_frees_is_no_successor);
    RUN(a_thread_past_its_end_allocates);
    RUN(a_heap_is_cleared_while_a_thread_that_used_it_ends);
    return EXPECT_RESULT();
}
