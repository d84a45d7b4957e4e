/* thread_ends.c - malloc, realloc and free in key destructors, atexit handlers and cancelled threads.
 *
 * Owns:    a few pthread keys, so that destructors run before and after the library's own.
 * Threads: a key's destructor runs in the ending thread, up to PTHREAD_DESTRUCTOR_ITERATIONS rounds;
 *          one that sets its key again is called after the library's own thread-end work, the last time when nobody
 *          is called again. A thread that ended has left no heap that further ones do not use: their number stays, or nearly so
 *          where nobody is told of the end.
 *
 * ctest: timeout=300
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <limits.h>
#include <pthread.h>

/* Dead ones, too. */
static uint64_t heap_count(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.heap_count;
}
/* As many as there were, but for a few of threads that lived, or borrowed, at the same time. */
#define EXPECT_HEAPS(before, more)                                                                                  \
    do {                                                                                                            \
        uint64_t now_ = heap_count();                                                                               \
        EXPECT_SAY(now_ <= (before) + (more), "%llu heaps, then %llu", (unsigned long long)(before), (unsigned long long)now_); \
    } while (0)

enum { KEY_COUNT = 40 };
static pthread_key_t keys[KEY_COUNT];
static int rounds_seen;
static pthread_key_t again_key;

static void key_end(void *block)
{
    EXPECT(malloc_usable_size(block) >= 10);
    void *more = malloc(200);
    memset(more, 1, 200);
    block = realloc(block, 2000);
    EXPECT(block != NULL);
    free(block);
    free(more);
}

struct again {
    int round;
    void *kept;
};

static void key_end_again(void *argument)
{
    struct again *again = (struct again *)argument;
    __atomic_add_fetch(&rounds_seen, 1, __ATOMIC_RELAXED);
    void *small = malloc((size_t)again->round * 100 + 8), *large = calloc(1, 200000);
    EXPECT(small != NULL && large != NULL);
    free(again->kept);
    again->kept = small;
    free(large);
    if (++again->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(again_key, again);
        return;
    }
    free(again->kept);
    free(again);
}

static void *set_keys_and_end(void *unused)
{
    (void)unused;
    for (int i = 0; i < KEY_COUNT; i++)
        pthread_setspecific(keys[i], malloc((size_t)i * 50 + 10));
    struct again *again = (struct again *)calloc(1, sizeof *again);
    pthread_setspecific(again_key, again);
    return NULL;
}

static void key_destructors_allocate_and_free(void)
{
    for (int i = 0; i < KEY_COUNT; i++)
        REQUIRE(pthread_key_create(&keys[i], key_end) == 0);
    REQUIRE(pthread_key_create(&again_key, key_end_again) == 0);
    uint64_t before = heap_count();
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, set_keys_and_end, NULL) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 2);
    EXPECT_SAY(rounds_seen == 500 * PTHREAD_DESTRUCTOR_ITERATIONS, "%d rounds", rounds_seen);
}

/* Who gives all free memory back looks at the heaps of threads that ended, too: threads that begin meanwhile find them, and make no new
 * ones, which would stay for ever. */
static int trim_no_more;
static void *trim_until_told(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&trim_no_more, __ATOMIC_ACQUIRE))
        hak_collect();
    return NULL;
}
static void *allocate_a_little(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++)
        free(malloc((size_t)i * 50));
    return NULL;
}
static void threads_begin_while_all_is_given_back(void)
{
    pthread_t trimmer, thread;
    REQUIRE(pthread_create(&trimmer, NULL, trim_until_told, NULL) == 0);
    uint64_t before = heap_count();
    int count = getenv("HAK_TEST_EMULATED") ? 100 : 3000;
    for (int i = 0; i < count; i++) {
        REQUIRE(pthread_create(&thread, NULL, allocate_a_little, NULL) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 4);
    __atomic_store_n(&trim_no_more, 1, __ATOMIC_RELEASE);
    pthread_join(trimmer, NULL);
}

/* A thread that uses malloc only after its own end began. */
static void key_end_first_use(void *unused)
{
    (void)unused;
    void *blocks[50];
    for (int i = 0; i < 50; i++)
        blocks[i] = malloc((size_t)i * 40);
    for (int i = 0; i < 50; i++)
        free(blocks[i]);
}
static pthread_key_t late_key;
static void *only_late(void *argument)
{
    pthread_setspecific(late_key, argument);
    return NULL;
}
static void the_first_malloc_may_be_in_a_key_destructor(void)
{
    REQUIRE(pthread_key_create(&late_key, key_end_first_use) == 0);
    uint64_t before = heap_count();
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, only_late, (void *)1) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 2);
}

/* The last time that a destructor of such a thread runs nobody is told of its end any more. */
static pthread_key_t last_key;
static int refused_count;
static void key_end_first_use_in_the_last_round(void *round)
{
    if ((intptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(last_key, (void *)((intptr_t)round + 1));
        return;
    }
    void *block = malloc(40);
    refused_count += block == NULL;
    free(block);
}
static void *only_last(void *argument)
{
    pthread_setspecific(last_key, argument);
    return NULL;
}
static void the_first_malloc_may_be_in_the_last_round(void)
{
    REQUIRE(pthread_key_create(&last_key, key_end_first_use_in_the_last_round) == 0);
    uint64_t before = heap_count();
    int count = getenv("HAK_TEST_EMULATED") ? 500 : 50000; /* there are 49,152 heaps */
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, only_last, (void *)1) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 200);
    EXPECT_SAY(refused_count == 0, "%d", refused_count);
}

/* So it is with a first free of what a thread that ended left: it takes over that heap, and says nothing of its end. */
static void key_end_first_free_in_the_last_round(void *round)
{
    static void *left[2];
    if ((intptr_t)round == 0) { /* of the thread that leaves them */
        left[0] = malloc(40);
        left[1] = malloc(40);
        return;
    }
    if ((intptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(last_key, (void *)((intptr_t)round + 1));
    else
        free(left[0]), free(left[1]);
}
static void *leave_one(void *unused)
{
    key_end_first_free_in_the_last_round(unused);
    return NULL;
}
static void the_first_free_may_be_in_the_last_round(void)
{
    REQUIRE(pthread_key_create(&last_key, key_end_first_free_in_the_last_round) == 0);
    uint64_t before = heap_count();
    int count = getenv("HAK_TEST_EMULATED") ? 100 : 2000;
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, leave_one, NULL) == 0);
        pthread_join(thread, NULL);
        REQUIRE(pthread_create(&thread, NULL, only_last, (void *)1) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 20);
}

/* Every kind of block, in every round; the last one's blocks are another thread's to free. */
enum { LEFT = 40, FILLED = 5000 };
struct rounds {
    int round;
    bool forks;
    unsigned char *left[LEFT];
    size_t bytes[LEFT];
};
static pthread_key_t rounds_key;

static void fill(struct rounds *rounds, int i, void *block, size_t bytes)
{
    REQUIRE(block != NULL);
    free(rounds->left[i]);
    rounds->left[i] = (unsigned char *)block;
    rounds->bytes[i] = bytes < FILLED ? bytes : FILLED;
    memset(block, i + 1, rounds->bytes[i]);
    memset((char *)block + bytes - 1, i + 1, 1);
}
static void check(const struct rounds *rounds)
{
    for (int i = 0; i < LEFT; i++)
        for (size_t k = 0; k < rounds->bytes[i]; k++)
            EXPECT_SAY(rounds->left[i][k] == i + 1, "byte %zu of block %d", k, i);
}
static void allocate_every_kind(struct rounds *rounds)
{
    static const size_t sizes[] = {1, 24, 100, 500, 1024, 1025, 3000, 20000, 60000, 200000, 3000000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < LEFT; i++) {
        size_t bytes = sizes[i % SIZES];
        if (i < SIZES) {
            fill(rounds, i, malloc(bytes), bytes);
        } else if (i < 2 * SIZES) {
            unsigned char *zeroed = (unsigned char *)calloc(1, bytes);
            EXPECT(zeroed != NULL && zeroed[0] == 0 && zeroed[bytes / 2] == 0 && zeroed[bytes - 1] == 0);
            fill(rounds, i, zeroed, bytes);
        } else if (i < 3 * SIZES) {
            void *aligned = aligned_alloc(256, bytes);
            EXPECT((uintptr_t)aligned % 256 == 0);
            fill(rounds, i, aligned, bytes);
        } else {
            size_t more = bytes * (size_t)(rounds->round + 1);
            void *moved = realloc(rounds->left[i], more);
            REQUIRE(moved != NULL);
            rounds->left[i] = NULL;
            fill(rounds, i, moved, more);
        }
    }
    void *page = valloc(100);
    EXPECT(page != NULL && (uintptr_t)page % 4096 == 0);
    free(page);
    for (int i = 0; i < 300; i++)
        free(malloc((size_t)i * 7));
}
static void *allocate_every_kind_in_a_thread(void *rounds)
{
    allocate_every_kind((struct rounds *)rounds);
    return NULL;
}
static void fork_in_the_last_round(struct rounds *rounds)
{
    int failures = expect_failure_count;
    pid_t child = fork();
    if (child == 0) {
        check(rounds);
        allocate_every_kind(rounds);
        if (!getenv("HAK_TEST_EMULATED")) { /* qemu-user 7.2 ends with an assertion of its own */
            pthread_t thread;
            REQUIRE(pthread_create(&thread, NULL, allocate_every_kind_in_a_thread, rounds) == 0);
            pthread_join(thread, NULL);
        }
        check(rounds);
        _exit(expect_failure_count != failures);
    }
    int status = child_wait(child, 20);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
}
static void key_end_each_round(void *argument)
{
    struct rounds *rounds = (struct rounds *)argument;
    check(rounds);
    allocate_every_kind(rounds);
    if (++rounds->round < PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(rounds_key, rounds);
    else if (rounds->forks)
        fork_in_the_last_round(rounds);
}
static void *end_in_rounds(void *rounds)
{
    free(malloc(50));
    pthread_setspecific(rounds_key, rounds);
    return NULL;
}
static void threads_end_in_rounds(int count, int at_once, bool forks)
{
    static struct rounds all[8];
    for (int i = 0; i < count; i++) {
        pthread_t threads[8];
        for (int k = 0; k < at_once; k++) {
            all[k].round = 0;
            all[k].forks = forks;
            REQUIRE(pthread_create(&threads[k], NULL, end_in_rounds, &all[k]) == 0);
        }
        for (int k = 0; k < at_once; k++) {
            pthread_join(threads[k], NULL);
            EXPECT(all[k].round == PTHREAD_DESTRUCTOR_ITERATIONS);
            check(&all[k]);
        }
    }
    for (int k = 0; k < at_once; k++)
        for (int i = 0; i < LEFT; i++) {
            free(all[k].left[i]);
            all[k].left[i] = NULL;
            all[k].bytes[i] = 0;
        }
}
static void a_key_destructor_may_allocate_in_the_last_round(void)
{
    REQUIRE(pthread_key_create(&rounds_key, key_end_each_round) == 0);
    uint64_t before = heap_count();
    threads_end_in_rounds(getenv("HAK_TEST_EMULATED") ? 200 : 2000, 1, false);
    EXPECT_HEAPS(before, 2);
    threads_end_in_rounds(100, 8, false);
    EXPECT_HEAPS(before, 32);
    before = heap_count();
    threads_end_in_rounds(20, 2, true);
    EXPECT_HEAPS(before, 4);
}

static void block_free(void *block)
{
    free(*(void **)block);
    void *fresh = malloc(77);
    free(fresh);
}
static void *loop_until_cancelled(void *unused)
{
    (void)unused;
    void *block = malloc(1000);
    pthread_cleanup_push(block_free, &block);
    for (;;) {
        void *other = malloc(300);
        memset(other, 1, 300);
        free(other);
        pthread_testcancel();
    }
    pthread_cleanup_pop(1);
    return NULL;
}
static void cancelled_threads_free_in_cleanup_handlers(void)
{
    uint64_t before = heap_count();
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, loop_until_cancelled, NULL) == 0);
        if (i % 2)
            sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    EXPECT_HEAPS(before, 2);
}

static void *main_ends_first(void *unused)
{
    (void)unused;
    struct timespec nap = {0, 50000000};
    for (int i = 0; i < 2000; i++)
        free(malloc((size_t)i));
    nanosleep(&nap, NULL);
    for (int i = 0; i < 2000; i++)
        free(malloc((size_t)i));
    exit(expect_failure_count != 0);
}
static void other_threads_go_on_after_main_ended_with_pthread_exit(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, main_ends_first, NULL);
        pthread_setspecific(keys[3], malloc(50));
        pthread_exit(NULL);
    }
    int status = child_wait(child, 20);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
}

static void *churn_for_ever(void *unused)
{
    for (;;)
        free(malloc(500));
    return unused;
}
static void *volatile block_of_exit;
static void at_exit_handler(void)
{
    free(block_of_exit);
    for (int i = 0; i < 1000; i++) {
        void *block = malloc((size_t)i * 100);
        if (block == NULL)
            _exit(3);
        free(block);
    }
}
static void the_process_ends_while_threads_allocate(void)
{
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t threads[4];
            for (int k = 0; k < 4; k++)
                pthread_create(&threads[k], NULL, churn_for_ever, NULL);
            block_of_exit = malloc(100);
            atexit(at_exit_handler);
            at_quick_exit(at_exit_handler);
            if (i % 4 == 3)
                quick_exit(0);
            exit(0);
        }
        int status = child_wait(child, 20);
        EXPECT_SAY(status == 0, "status %#x in round %d", (unsigned)status, i);
    }
}

static __attribute__((constructor(101))) void allocate_in_an_early_constructor(void)
{
    block_of_exit = malloc(100);
    EXPECT(block_of_exit != NULL);
}
static __attribute__((destructor(101))) void allocate_in_a_late_destructor(void)
{
    void *block = malloc(3000);
    if (block == NULL)
        _exit(4);
    free(block);
}

int main(void)
{
    /* First, while there are few keys: of an ending thread that has more, glibc frees a block and then forgets it, and a fork in
     * between has it freed again by the child's next thread. */
    RUN(a_key_destructor_may_allocate_in_the_last_round);
    RUN(key_destructors_allocate_and_free);
    RUN(threads_begin_while_all_is_given_back);
    RUN(the_first_malloc_may_be_in_a_key_destructor);
    RUN(the_first_malloc_may_be_in_the_last_round);
    RUN(the_first_free_may_be_in_the_last_round);
    RUN(cancelled_threads_free_in_cleanup_handlers);
    RUN(other_threads_go_on_after_main_ended_with_pthread_exit);
    RUN(the_process_ends_while_threads_allocate);
    return EXPECT_RESULT();
}
