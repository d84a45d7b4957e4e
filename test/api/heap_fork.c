/* heap_fork.c - heaps in a forked child, whose other threads are gone, each of which had its part.
 *
 * Threads: two hold still while the first one forks; and two that never do.
 * ctest: secure
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { MANY = 3000, THREADS = 2 };
static hak_heap_t *heap, *limited;
static void *mine[MANY], *theirs[THREADS][MANY], *cross[MANY];
static pthread_barrier_t barrier;

static size_t size_at(int i) { return (size_t)(i % 60) * (i % 150 == 0 ? 2000 : 41) + 1; }

static struct hak_heap_stats stats_of(hak_heap_t *of)
{
    struct hak_heap_stats stats;
    hak_heap_stats_get(of, &stats, sizeof stats);
    return stats;
}

static void *holds(void *argument)
{
    void **blocks = (void **)argument;
    for (int i = 0; i < MANY; i++) {
        blocks[i] = hak_heap_malloc(heap, size_at(i));
        free(hak_heap_malloc(limited, 100));
    }
    pthread_barrier_wait(&barrier);
    for (int i = blocks == theirs[0] ? 0 : 1; i < MANY; i += 3) { /* of the forking thread: they lie in batches */
        free(cross[i]);
        cross[i] = NULL;
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
    return NULL;
}

static void *allocates(void *argument)
{
    for (int i = 0; i < MANY; i++)
        EXPECT(hak_heap_malloc((hak_heap_t *)argument, size_at(i)) != NULL);
    return NULL;
}

/* In a thread of its own. qemu-user 7.2 ends with an assertion of its own where a child begins one: there in the calling one. */
static void elsewhere(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    if (getenv("HAK_TEST_EMULATED"))
        work(argument);
    else
        REQUIRE(pthread_create(&thread, NULL, work, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* What the child finds is the parent's to the block, and it goes on with it. */
static void child_runs(int way)
{
    uint64_t lost = 2 * MANY / 3; /* in vanished threads' batches: free, or lost */
    uint64_t live = stats_of(heap).live_count;
    EXPECT_SAY(live >= 4 * MANY - lost - 8 && live <= 4 * MANY, "%llu", (unsigned long long)live);
    for (int i = 0; i < MANY; i++) {
        EXPECT(hak_heap_of(mine[i]) == heap && hak_heap_of(theirs[0][i]) == heap);
        if (way % 2)
            free(mine[i]);
        if (way % 3)
            free(theirs[1][i]);
    }
    for (int i = 0; i < MANY; i++)
        REQUIRE(hak_heap_malloc(heap, size_at(i)));
    elsewhere(allocates, heap);
    if (way % 4 < 2) {
        hak_heap_clear(heap);
        EXPECT(stats_of(heap).live_count == 0);
        hak_collect();
        unsigned most_mb = getenv("HAK_TEST_EMULATED") ? 16 : 2; /* of the calling thread a slab of each class stays */
        EXPECT_SAY(stats_of(heap).taken_bytes <= most_mb << 20, "%llu", (unsigned long long)stats_of(heap).taken_bytes);
    }
    int count = 0;
    while (hak_heap_malloc(limited, 1000))
        count++;
    EXPECT_SAY(count > 3000, "%d", count);
    if (way % 4 == 3)
        hak_heap_delete(heap);
    else
        hak_heap_destroy(heap);
    hak_heap_destroy(limited);
    hak_heap_t *next = hak_heap_new(0);
    allocates(next);
    EXPECT(stats_of(next).live_count == MANY);
    hak_heap_destroy(next);
}

static uint64_t live_bytes(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.live_bytes;
}

static void *clears(void *unused)
{
    uint64_t bytes = stats_of(heap).live_bytes, before = live_bytes();
    hak_heap_clear(heap);
    EXPECT(stats_of(heap).live_count == 0);
    EXPECT_SAY(live_bytes() + bytes <= before + 4096, "%llu of %llu bytes are left", (unsigned long long)live_bytes(), (unsigned long long)before);
    allocates(heap);
    hak_heap_destroy(heap);
    return unused;
}

/* Another thread than the one that forked ends the heap. */
static void another_thread_of_the_child(int way)
{
    (void)way;
    elsewhere(clears, NULL);
    for (int i = 0; i < 1000; i++)
        free(malloc((size_t)i * 50));
}

static void in_child(void (*run)(int), int way)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        expect_failure_count = 0;
        run(way);
        pid_t grandchild = way == 5 ? fork() : -1;
        if (grandchild == 0) {
            for (int i = 0; i < 5000; i++)
                free(malloc((size_t)i));
            _exit(0);
        }
        if (grandchild > 0)
            EXPECT(child_wait(grandchild, 60) == 0);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "way %d: status %#x", way, (unsigned)status);
}

static void a_child_goes_on_with_its_heaps(void)
{
    pthread_t threads[THREADS];
    heap = hak_heap_new(0);
    limited = hak_heap_new(8 << 20);
    REQUIRE(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < MANY; i++) {
        mine[i] = hak_heap_malloc(heap, size_at(i));
        cross[i] = hak_heap_malloc(heap, size_at(i));
    }
    for (int t = 0; t < THREADS; t++)
        REQUIRE(pthread_create(&threads[t], NULL, holds, theirs[t]) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int way = 0; way < 12; way++)
        in_child(child_runs, way);
    in_child(another_thread_of_the_child, 0);
    pthread_barrier_wait(&barrier);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int i = 0; i < MANY; i++) {
        free(mine[i]);
        free(cross[i]);
    }
    EXPECT(stats_of(heap).live_count == 0);
    hak_heap_destroy(heap);
    hak_heap_destroy(limited);
}

/* --- while others are at it --- */

static int stop;
static void *churns(void *unused)
{
    void *held[64] = {NULL};
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        free(held[i % 64]);
        held[i % 64] = hak_heap_malloc(i % 5 ? heap : limited, size_at((int)(i % 1000)));
    }
    for (int i = 0; i < 64; i++)
        free(held[i]);
    return unused;
}

static void child_clears(int way)
{
    for (int i = 0; i < 500; i++)
        REQUIRE(hak_heap_malloc(heap, size_at(i)));
    hak_heap_clear(heap);
    EXPECT_SAY(stats_of(heap).live_count == 0, "%llu", (unsigned long long)stats_of(heap).live_count);
    for (int i = 0; i < 500; i++)
        REQUIRE(hak_heap_malloc(heap, size_at(i)));
    hak_heap_clear(limited);
    if (way % 2)
        hak_heap_destroy(heap);
    void *block = hak_heap_malloc(limited, 100);
    EXPECT(block != NULL);
    free(block);
}

static void a_child_of_busy_threads_clears_them(void)
{
    pthread_t threads[3];
    heap = hak_heap_new(0);
    limited = hak_heap_new(64 << 20);
    for (int t = 0; t < 3; t++)
        REQUIRE(pthread_create(&threads[t], NULL, churns, NULL) == 0);
    for (int way = 0; way < 40; way++)
        in_child(child_clears, way);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    hak_heap_destroy(heap);
    hak_heap_destroy(limited);
}

/* A raw fork calls no handler: the first call that meets the child's page makes its first step. */
static void a_child_of_a_raw_fork_does_the_same(void)
{
    heap = hak_heap_new(0);
    limited = hak_heap_new(8 << 20);
    allocates(heap);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, allocates, heap) == 0 && pthread_join(thread, NULL) == 0);
    for (int way = 0; way < 4; way++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        REQUIRE(child >= 0);
        if (child == 0) {
            expect_failure_count = 0;
            if (way % 2)
                allocates(heap);
            else
                for (int i = 0; i < 100; i++)
                    free(hak_heap_malloc(heap, size_at(i)));
            if (way / 2)
                hak_heap_clear(heap);
            allocates(heap);
            EXPECT(stats_of(heap).live_count == (uint64_t)(way / 2 ? MANY : (3 + way % 2) * MANY));
            hak_heap_destroy(heap);
            _exit(expect_failure_count != 0);
        }
        int status = child_wait(child, 60);
        EXPECT_SAY(status == 0, "way %d: status %#x", way, (unsigned)status);
    }
    hak_heap_destroy(heap);
    hak_heap_destroy(limited);
}

static void *forks(void *unused)
{
    pid_t child = fork(); /* by a thread that never allocated */
    if (child == 0) {
        expect_failure_count = 0;
        hak_heap_clear(heap);
        EXPECT(stats_of(heap).live_count == 0);
        allocates(heap);
        hak_heap_destroy(heap);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    return unused;
}

static void a_thread_without_a_heap_forks(void)
{
    pthread_t thread;
    heap = hak_heap_new(0);
    allocates(heap);
    REQUIRE(pthread_create(&thread, NULL, forks, NULL) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(stats_of(heap).live_count == MANY);
    hak_heap_destroy(heap);
}

int main(void)
{
    RUN(a_child_goes_on_with_its_heaps);
    RUN(a_child_of_busy_threads_clears_them);
    RUN(a_child_of_a_raw_fork_does_the_same);
    RUN(a_thread_without_a_heap_forks);
    return EXPECT_RESULT();
}
