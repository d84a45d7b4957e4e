/* fork_children.c - children of programs with threads allocate and free: fork, _Fork, clone, vfork.
 *
 * Owns:    churning threads while a test runs.
 * Threads: four churn while the main thread forks; a child has only the forking thread, and what the others
 *          held at that moment is in whatever state it was. No child may hang: each has a deadline.
 *
 * ctest: native timeout=300
 */
#include "expect.h"
#include <hakmem/hakmem.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static atomic_bool churn_stop;

static void *churn(void *argument)
{
    struct random_state random = {(uintptr_t)argument};
    void *blocks[256] = {0};
    while (!atomic_load_explicit(&churn_stop, memory_order_relaxed)) {
        size_t i = random_below(&random, 256);
        free(blocks[i]);
        blocks[i] = malloc(random_below(&random, random_below(&random, 64) == 0 ? 200000 : 2000));
    }
    for (int i = 0; i < 256; i++)
        free(blocks[i]);
    return NULL;
}

static pthread_t churners[4];
static void churn_begin(void)
{
    atomic_store(&churn_stop, false);
    for (uintptr_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&churners[i], NULL, churn, (void *)(i + 1)) == 0);
}
static void churn_end(void)
{
    atomic_store(&churn_stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(churners[i], NULL);
}

enum { HELD = 2000 };
static char *held[HELD];
static size_t held_bytes(int i)
{
    return (size_t)(i % 40) * 61 + 1 + (i % 100 == 0 ? 100000u : 0u);
}
static void held_make(void)
{
    for (int i = 0; i < HELD; i++) {
        held[i] = (char *)malloc(held_bytes(i));
        stamp_fill(held[i], held_bytes(i), (uint64_t)i);
    }
}
static void held_check_and_free(void)
{
    for (int i = 0; i < HELD; i++) {
        EXPECT(stamp_check(held[i], held_bytes(i), held_bytes(i), (uint64_t)i) == SIZE_MAX);
        free(held[i]);
    }
}

/* What a child does: frees the parent's blocks, allocates in all sizes, ends by _exit. */
static void child_work(void)
{
    held_check_and_free();
    for (size_t size = 1; size < (size_t)2 << 20; size += size / 2 + 1) {
        char *block = (char *)calloc(1, size);
        if (block == NULL || block[size - 1] != 0)
            _exit(2);
        block = (char *)realloc(block, size * 2);
        memset(block, 7, size * 2);
        free(block);
    }
    struct random_state random = {(uint64_t)getpid()};
    static void *blocks[512];
    for (int i = 0; i < 10000; i++) {
        size_t k = random_below(&random, 512);
        free(blocks[k]);
        blocks[k] = malloc(random_below(&random, 3000));
    }
    _exit(expect_failure_count != 0 ? 1 : 0);
}

static void children_run(pid_t (*make_child)(void), int count, const char *how)
{
    held_make();
    churn_begin();
    for (int i = 0; i < count; i++) {
        pid_t child = make_child();
        if (child == 0)
            child_work();
        REQUIRE(child > 0);
        int status = child_wait(child, 30);
        EXPECT_SAY(status == 0, "child %d by %s: status %#x (-1: hung)", i, how, (unsigned)status);
        if (status == -1)
            break;
    }
    churn_end();
    held_check_and_free();
}

static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_fork(void) { return fork(); }

static void children_by_fork(void) { children_run(by_fork, 30, "fork"); }
static void children_by_clone(void) { children_run(by_clone, 30, "clone"); }
#ifndef __GLIBC_PREREQ
#define __GLIBC_PREREQ(major, minor) 1 /* musl has _Fork since 1.2.2 */
#endif
#if __GLIBC_PREREQ(2, 34)
static pid_t by_underscore_fork(void) { return _Fork(); }
static void children_by_underscore_fork(void) { children_run(by_underscore_fork, 30, "_Fork"); }
#endif

/* A child starts threads of its own, forks again, and they go on. */
static void *allocate_some(void *argument)
{
    for (int i = 0; i < 5000; i++)
        free(malloc((size_t)i % 700));
    return argument;
}
static void children_with_threads_and_grandchildren(void)
{
    churn_begin();
    for (int i = 0; i < 15; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t threads[4];
            for (int k = 0; k < 4; k++)
                if (pthread_create(&threads[k], NULL, allocate_some, NULL) != 0)
                    _exit(2);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                allocate_some(NULL);
                exit(0);
            }
            int status = child_wait(grandchild, 20);
            for (int k = 0; k < 4; k++)
                pthread_join(threads[k], NULL);
            exit(status == 0 ? 0 : 3);
        }
        int status = child_wait(child, 60);
        EXPECT_SAY(status == 0, "child %d: status %#x", i, (unsigned)status);
        if (status == -1)
            break;
    }
    churn_end();
}

/* Threads fork at the same time, as shells and build tools under load do. */
static void *fork_many(void *argument)
{
    for (int i = 0; i < 40; i++) {
        void *block = malloc(500);
        pid_t child = fork();
        if (child == 0) {
            free(block);
            for (int k = 0; k < 500; k++)
                free(malloc((size_t)k * 11));
            _exit(0);
        }
        int status = child < 0 ? -1 : child_wait(child, 30);
        EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
        free(block);
        if (status == -1)
            break;
    }
    return argument;
}
static void fork_storm_from_four_threads_under_load(void)
{
    pthread_t threads[4];
    churn_begin();
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, fork_many, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    churn_end();
}

static void vfork_and_exec_under_load(void)
{
    churn_begin();
    for (int i = 0; i < 100; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        EXPECT(child_wait(child, 30) == 0);
    }
    EXPECT(system("exit 3") >> 8 == 3); /* posix_spawn inside */
    churn_end();
}

static void handler_prepare(void) { free(malloc(2000)); }
static void handler_parent(void) { free(malloc(40000)); }
static void handler_child(void) { free(malloc(300)); }
static void fork_handlers_allocate(void)
{
    REQUIRE(pthread_atfork(handler_prepare, handler_parent, handler_child) == 0);
    children_run(by_fork, 15, "fork with handlers");
}

/* What the parent's threads hold is the child's, whoever forked: it is freed there and used again. */
enum { INHERITED = 40000, INHERITED_BYTES = 1000 };
static void *inherited[INHERITED];

static void *fork_without_a_heap(void *said)
{
    pid_t child = (pid_t)syscall(SYS_gettid) ? fork() : -1; /* nothing is allocated in this thread */
    if (child == 0) {
        long before = resident_kib();
        for (int round = 0; round < 3; round++) {
            size_t bytes = INHERITED_BYTES + (size_t)round * 700;
            for (int i = 0; i < INHERITED; i++)
                free(inherited[i]);
            for (int i = 0; i < INHERITED; i++)
                memset(inherited[i] = malloc(bytes), 1, bytes);
        }
        long grown = resident_kib() - before, needed = (long)INHERITED * (2400 - INHERITED_BYTES) / 1024;
        EXPECT_SAY(!resident_is_known() || grown < needed + needed / 5, "%ld KiB more resident, of %ld", grown, needed);
        static struct hak_stats stats;
        hak_stats_get(&stats, sizeof stats);
        bool is_heir = getenv("HAKMEM_BACKGROUND") == NULL; /* else that thread is, when its time comes */
        EXPECT_SAY(!is_heir || stats.dead_heap_count + 1 == stats.heap_count, "%lu of %lu heaps are nobody's", (unsigned long)stats.dead_heap_count,
                   (unsigned long)stats.heap_count);
        _exit(expect_failure_count != 0);
    }
    *(int *)said = child < 0 ? -1 : child_wait(child, 60);
    return NULL;
}

static void a_thread_without_a_heap_forks(void)
{
    pthread_t thread;
    int status = -1;
    for (int i = 0; i < INHERITED; i++)
        memset(inherited[i] = malloc(INHERITED_BYTES), 1, INHERITED_BYTES);
    REQUIRE(pthread_create(&thread, NULL, fork_without_a_heap, &status) == 0);
    pthread_join(thread, NULL);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    for (int i = 0; i < INHERITED; i++)
        free(inherited[i]);
}

/* Blocks above 1 KiB that vanished threads had kept are free, but nobody's: they count no more. */
static volatile int keepers_ready;
static void *keep_some(void *argument)
{
    void *kept[8];
    for (size_t size = 1100; size < 32000; size += 300) {
        for (int i = 0; i < 8; i++)
            kept[i] = malloc(size);
        for (int i = 0; i < 8; i++)
            free(kept[i]);
    }
    __atomic_add_fetch(&keepers_ready, 1, __ATOMIC_SEQ_CST);
    pause();
    return argument;
}

static void *allocate_and_wait(void *blocks)
{
    for (int i = 0; i < 1400; i++)
        ((void **)blocks)[i] = malloc(64);
    keepers_ready = 1;
    pause();
    return NULL;
}

static void no_free_memory_is_counted_twice_in_a_child(void)
{
    enum { KEEPERS = 8 };
    pid_t parent = fork();
    if (parent == 0) {
        pthread_t thread;
        for (int i = 0; i < KEEPERS; i++)
            REQUIRE(pthread_create(&thread, NULL, keep_some, NULL) == 0);
        while (keepers_ready < KEEPERS)
            usleep(1000);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3000; i++)
                memset(malloc(1000), 1, 1000);
            malloc_trim(0);
            struct hak_stats stats;
            hak_stats_get(&stats, sizeof stats);
            size_t counted = stats.free_bytes;
            EXPECT_SAY(counted < 2u << 20, "%zu bytes are called free", counted);
            _exit(expect_failure_count != 0);
        }
        int status = child_wait(child, 60);
        _exit(status != 0);
    }
    EXPECT(child_wait(parent, 90) == 0);
}

/* Mail that nobody had read was valid again 64 generations later, and the child ran for ever. */
static void mail_of_an_early_ancestor_is_void(void)
{
    enum { DEPTH = 64, COUNT = 700 };
    pid_t first = fork();
    if (first == 0) {
        pthread_t thread;
        keepers_ready = 0;
        static void *of_other[2 * COUNT];
        REQUIRE(pthread_create(&thread, NULL, allocate_and_wait, of_other) == 0);
        while (!keepers_ready)
            usleep(1000);
        for (int i = 0; i < 10; i++)
            free(of_other[i]);
        malloc_trim(0); /* posts it; the owner sleeps */
        for (int depth = 0; depth < DEPTH; depth++) {
            pid_t child = fork();
            if (child != 0)
                _exit(child_wait(child, 60) != 0);
        }
        for (int i = 100; i < 100 + COUNT; i++)
            free(of_other[i]);
        alarm(30);
        for (int i = 0; i < 20000; i++)
            memset(malloc(48 + (size_t)i % 512), 1, 48);
        _exit(0);
    }
    EXPECT(child_wait(first, 90) == 0);
}

static void *volatile passed;
static atomic_bool passed_is_free;

static void *free_and_wait(void *argument)
{
    free(passed);
    atomic_store(&passed_is_free, true);
    for (;;)
        pause();
    return argument;
}

/* Its owner has it at hand for the next malloc when what another thread gave back is taken in, in a child. */
static void grandchild_allocates(void)
{
    for (int i = 0; i < 4000; i++)
        passed = malloc(200);
    for (int i = 0; i < 200; i++)
        passed = malloc(4000);
    _exit(0);
}

static void a_double_free_before_a_fork_is_found_in_the_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        close(2);
        pthread_t thread;
        void *several[30];
        for (int i = 0; i < 30; i++)
            several[i] = malloc(4000);
        free(several[0]);
        for (int i = 0; i < 20; i++) {
            several[0] = malloc(4000);
            free(several[0]);
        }
        void *block = passed = malloc(4000);
        REQUIRE(pthread_create(&thread, NULL, free_and_wait, NULL) == 0);
        while (!atomic_load(&passed_is_free))
            sched_yield();
        free(block);
        pid_t grandchild = fork();
        if (grandchild == 0)
            grandchild_allocates();
        int status = child_wait(grandchild, 30);
        _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 0 : 1);
    }
    int status = child_wait(child, 60); /* or found before the fork, where the owner's chores were just due */
    EXPECT_SAY(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT), "status %#x", (unsigned)status);
}

/* Threads of the child are there before the forking one knows that it is a child, where no handler told it. The first that they do is
 * to free its blocks, while it finds out; their heaps are used again, and it frees theirs. */
enum { ROUNDS_FIRST = 100, PASSED_FIRST = 30000, OF_A_WORD = 64, THREADS_FIRST = 3 };
static void *theirs_first[PASSED_FIRST], *ours_first[PASSED_FIRST];
static size_t first_bytes(size_t i) { return 200 + i / OF_A_WORD % 8 * 64; }
static void *work_first(void *argument) /* one block of each word: each is posted to the owner */
{
    enum { STEP = OF_A_WORD * THREADS_FIRST };
    for (size_t i = (uintptr_t)argument * OF_A_WORD; i < PASSED_FIRST; i += STEP)
        free(ours_first[i]);
    for (size_t i = (uintptr_t)argument * OF_A_WORD; i < PASSED_FIRST; i += STEP)
        stamp_fill(theirs_first[i] = malloc(first_bytes(i)), first_bytes(i), i);
    return argument;
}
static void *nothing(void *argument) { return argument; }
static int threads_first(void *(*function)(void *), unsigned calls)
{
    pthread_t thread[THREADS_FIRST];
    for (uintptr_t k = 0; k < THREADS_FIRST; k++)
        if (pthread_create(&thread[k], NULL, function, (void *)k) != 0)
            return -1;
    for (volatile unsigned k = 0; k < calls * 100;)
        k = k + 1;
    for (unsigned k = 0; k < calls; k++)
        free(malloc(1 + k % 4000));
    for (int k = 0; k < THREADS_FIRST; k++)
        pthread_join(thread[k], NULL);
    return 0;
}
static void child_of_new_threads(unsigned round)
{
    alarm(20);
    for (unsigned turn = 0; turn < 2; turn++) {
        if (threads_first(work_first, round * 7 % 1000) != 0)
            _exit(2);
        for (size_t i = 0; i < PASSED_FIRST; i += OF_A_WORD) {
            if (stamp_check(theirs_first[i], first_bytes(i), first_bytes(i), i) != SIZE_MAX)
                _exit(3);
            free(theirs_first[i]);
            stamp_fill(ours_first[i] = malloc(first_bytes(i)), first_bytes(i), i);
        }
    }
    for (size_t i = 0; i < PASSED_FIRST; i++) {
        if (stamp_check(ours_first[i], first_bytes(i), first_bytes(i), i) != SIZE_MAX)
            _exit(4);
        free(ours_first[i]);
    }
    _exit(0);
}
static void new_threads_first_run(pid_t (*make_child)(void))
{
    REQUIRE(threads_first(nothing, 0) == 0); /* their stacks are at hand from here on, so that nothing is allocated for them */
    for (size_t i = 0; i < PASSED_FIRST; i++)
        stamp_fill(ours_first[i] = malloc(first_bytes(i)), first_bytes(i), i);
    for (unsigned round = 0; round < ROUNDS_FIRST; round++) {
        pid_t child = make_child();
        if (child == 0)
            child_of_new_threads(round);
        int status = child_wait(child, 60);
        EXPECT_SAY(status == 0, "round %u: status %#x", round, (unsigned)status);
        if (status != 0)
            break;
    }
    for (size_t i = 0; i < PASSED_FIRST; i++)
        free(ours_first[i]);
}
static void new_threads_come_first_after_fork(void) { new_threads_first_run(by_fork); }
#if __GLIBC_PREREQ(2, 34)
static void new_threads_come_first_after_underscore_fork(void) { new_threads_first_run(by_underscore_fork); }
#endif

int main(void)
{
    RUN(a_thread_without_a_heap_forks); /* first: the main thread has blocks of its own alone */
    RUN(no_free_memory_is_counted_twice_in_a_child);
    RUN(mail_of_an_early_ancestor_is_void);
    RUN(a_double_free_before_a_fork_is_found_in_the_child);
    RUN(children_by_fork);
    RUN(children_by_clone);
#if __GLIBC_PREREQ(2, 34)
    RUN(children_by_underscore_fork);
#endif
    RUN(children_with_threads_and_grandchildren);
    RUN(new_threads_come_first_after_fork);
#if __GLIBC_PREREQ(2, 34)
    RUN(new_threads_come_first_after_underscore_fork);
#endif
    RUN(fork_storm_from_four_threads_under_load);
    RUN(vfork_and_exec_under_load);
    RUN(fork_handlers_allocate);
    return EXPECT_RESULT();
}
