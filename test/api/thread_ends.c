/* thread_ends.c - malloc, realloc and free in key destructors, atexit handlers and cancelled threads.
 *
 * Owns:    a few pthread keys, so that destructors run before and after the library's own.
 * Threads: a key's destructor runs in the ending thread, up to PTHREAD_DESTRUCTOR_ITERATIONS rounds;
 *          one that sets its key again is called after the library's own thread-end work.
 *
 * ctest: timeout=300
 */
#include "expect.h"

#include <limits.h>
#include <pthread.h>

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
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, set_keys_and_end, NULL) == 0);
        pthread_join(thread, NULL);
    }
    EXPECT_SAY(rounds_seen == 500 * PTHREAD_DESTRUCTOR_ITERATIONS, "%d rounds", rounds_seen);
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
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, only_late, (void *)1) == 0);
        pthread_join(thread, NULL);
    }
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
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, loop_until_cancelled, NULL) == 0);
        if (i % 2)
            sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
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
    RUN(key_destructors_allocate_and_free);
    RUN(the_first_malloc_may_be_in_a_key_destructor);
    RUN(cancelled_threads_free_in_cleanup_handlers);
    RUN(other_threads_go_on_after_main_ended_with_pthread_exit);
    RUN(the_process_ends_while_threads_allocate);
    return EXPECT_RESULT();
}
