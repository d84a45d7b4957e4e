/* shortage_callback.c - HAKMEM_LIMIT_HARD_MB ends memory with NULL and ENOMEM, and hak_on_shortage's callback is asked before.
 *
 * Owns:   children, each with limits of its own.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>

#include <pthread.h>
#include <sys/resource.h>

enum { LIMIT_MB = 64 };
#define MIB ((size_t)1 << 20)

struct link {
    struct link *next;
};

static size_t take_all(struct link **list, size_t size)
{
    size_t count = 0;
    for (struct link *block; errno = 0, (block = (struct link *)malloc(size)) != NULL; count++) {
        block->next = *list;
        *list = block;
    }
    EXPECT_SAY(errno == ENOMEM, "errno %d", errno);
    return count;
}

static void free_all(struct link **list)
{
    while (*list != NULL) {
        struct link *next = (*list)->next;
        free(*list);
        *list = next;
    }
}

static void limit_set(const char *mb) { REQUIRE(hak_option_set("limit_hard_mb", mb) == 0); }

static size_t taken(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return (size_t)stats.taken_bytes;
}

static void in_child(void (*work)(size_t), size_t size)
{
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        limit_set("64");
        work(size);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "status %#x with size %zu", (unsigned)status, size);
}

/* --- the limit alone --- */

static void work_filling(size_t size)
{
    struct link *list = NULL, *others = NULL;
    size_t limit = LIMIT_MB * MIB, count = take_all(&list, size);
    EXPECT_SAY(count * size <= limit && count * size >= limit / 100 * 85 - size, "%zu blocks of %zu", count, size);
    EXPECT_SAY(taken() <= limit, "%zu bytes taken", taken());
    errno = 0;
    EXPECT(malloc(limit) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(calloc(limit / 8, 8) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(realloc(list, limit) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(memalign(4096, limit) == NULL && errno == ENOMEM);
    void *block = NULL;
    EXPECT(posix_memalign(&block, 64, limit) == ENOMEM && block == NULL);
    free_all(&list);
    size_t again = take_all(&list, size);
    EXPECT_SAY(again + again / 16 + 2 >= count, "%zu blocks of %zu, then only %zu", count, size, again);
    free_all(&list);
    static const size_t sizes[] = {32, 1000, 20000, 300000}; /* freed in one size, it serves others */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = take_all(&others, sizes[i]) * sizes[i];
        EXPECT_SAY(bytes >= limit / 100 * 80, "%zu bytes in blocks of %zu after %zu", bytes, sizes[i], size);
        free_all(&others);
    }
}

static void every_size_ends_at_the_limit_and_recovers(void)
{
    static const size_t sizes[] = {16, 64, 500, 1024, 3000, 20000, 65536, 320000, 3u << 20, 10u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_child(work_filling, sizes[i]);
}

static void work_lifting(size_t size)
{
    struct link *list = NULL, *more = NULL;
    size_t count = take_all(&list, size);
    limit_set("128");
    size_t further = take_all(&more, size);
    EXPECT_SAY(further + further / 8 >= count, "%zu, then %zu", count, further);
    limit_set("32"); /* below what is held: nothing more, and all stays */
    EXPECT(malloc(MIB) == NULL);
    free_all(&more);
    EXPECT(malloc(MIB) == NULL);
    limit_set("0");
    void *block = malloc(256 * MIB);
    EXPECT(block != NULL);
    free(block);
    free_all(&list);
}

static void the_limit_is_set_and_lifted_while_the_program_runs(void)
{
    in_child(work_lifting, 100);
    in_child(work_lifting, 200000);
}

/* 40 MiB grow to 50 by moved pages: there is no room for a copy beside them. */
static void work_growing(size_t unused)
{
    (void)unused;
    char *block = (char *)malloc(40 * MIB), *wall = (char *)malloc(MIB);
    REQUIRE(block != NULL && wall != NULL);
    block[0] = block[40 * MIB - 1] = 7;
    block = (char *)realloc(block, 50 * MIB);
    REQUIRE(block != NULL);
    EXPECT(block[0] == 7 && block[40 * MIB - 1] == 7);
    errno = 0;
    EXPECT(realloc(block, 70 * MIB) == NULL && errno == ENOMEM);
    EXPECT(block[0] == 7 && block[40 * MIB - 1] == 7);
    block = (char *)realloc(block, 2 * MIB);
    EXPECT(block != NULL && block[0] == 7);
    free(block);
    free(wall);
}

static void a_block_grows_by_what_is_left(void) { in_child(work_growing, 0); }

static void *fill_and_free(void *size)
{
    for (int i = 0; i < 4; i++) {
        struct link *list = NULL;
        take_all(&list, *(size_t *)size);
        free_all(&list);
    }
    return NULL;
}

static void work_in_threads(size_t size)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct link *list = NULL;
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, fill_and_free, &size) == 0);
    for (int turn = 0; turn < 100; turn++) {
        EXPECT_SAY(taken() <= (LIMIT_MB + 8) * MIB, "%zu bytes taken", taken()); /* by what they take at once */
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    size_t count = take_all(&list, size);
    EXPECT_SAY(count * size >= LIMIT_MB * MIB / 100 * 75, "%zu blocks of %zu after the threads ended", count, size);
    free_all(&list);
}

static void threads_share_the_limit(void)
{
    in_child(work_in_threads, 3000);
    in_child(work_in_threads, 100000);
}

/* --- the callback --- */

static void *cache[512];
static size_t cache_count, asked_count, asked_bytes;

static void cache_fill(size_t size)
{
    for (cache_count = 0; cache_count < sizeof cache / sizeof *cache && (cache[cache_count] = malloc(size)) != NULL;)
        cache_count++;
}

/* Gives up a block of its cache at each call. */
static int give_up(void *context, size_t bytes)
{
    size_t *each = (size_t *)context;
    asked_count++;
    asked_bytes = bytes;
    errno = 99;
    for (size_t i = 0; i < *each && cache_count > 0; i++)
        free(cache[--cache_count]);
    if (cache_count > 0)
        return 1;
    return 0;
}

static void work_with_cache(size_t size)
{
    size_t each = 16, filled;
    struct link *rest = NULL;
    cache_fill(MIB);
    filled = cache_count;
    take_all(&rest, size);
    EXPECT_SAY(filled >= 60 && filled <= 64, "%zu", filled);
    hak_on_shortage(give_up, &each);
    errno = 77;
    void *block = size > 64 * 1024 ? calloc(1, size) : malloc(size);
    EXPECT_SAY(block != NULL && errno == 77, "errno %d", errno);
    EXPECT_SAY(asked_count == (size + 16 * MIB - 1) / (16 * MIB) && asked_bytes >= size && asked_bytes < size + size / 4 + 16, "%zu times, %zu bytes", asked_count,
               asked_bytes);
    EXPECT(cache_count == filled - 16 * asked_count);
    free(block);
    asked_count = 0;
    block = malloc(size);
    EXPECT(block != NULL && asked_count == 0); /* there is room now */
    free(block);
    hak_on_shortage(NULL, NULL);
    errno = 0;
    EXPECT(malloc(LIMIT_MB * MIB) == NULL && errno == ENOMEM && asked_count == 0);
    free_all(&rest);
}

static void who_gives_up_a_cache_gets_its_block(void)
{
    in_child(work_with_cache, 3000);
    in_child(work_with_cache, 100);
    in_child(work_with_cache, 100000);
    in_child(work_with_cache, 40 * MIB);
}

/* Growth by moved pages: what the callback gave up is enough for the difference, not for a copy. */
static void work_growing_with_cache(size_t unused)
{
    (void)unused;
    size_t each = 5;
    char *block = (char *)malloc(40 * MIB);
    REQUIRE(block != NULL);
    block[0] = block[40 * MIB - 1] = 7;
    cache_fill(MIB);
    hak_on_shortage(give_up, &each);
    block = (char *)realloc(block, 48 * MIB);
    REQUIRE(block != NULL);
    EXPECT(block[0] == 7 && block[40 * MIB - 1] == 7 && asked_count == 2);
    errno = 0;
    EXPECT(realloc(block, 65 * MIB) == NULL && errno == ENOMEM);
    EXPECT_SAY(cache_count == 0, "%zu are left", cache_count);
}

static void a_block_grows_by_what_the_callback_gave_up(void) { in_child(work_growing_with_cache, 0); }

static int always(void *context, size_t bytes)
{
    (void)bytes;
    ++*(size_t *)context;
    return 1;
}

static void work_without_end(size_t size)
{
    size_t count = 0;
    struct link *list = NULL;
    take_all(&list, size);
    hak_on_shortage(always, &count);
    errno = 0;
    EXPECT(malloc(size) == NULL && errno == ENOMEM);
    EXPECT_SAY(count == 64, "asked %zu times", count);
    /* sizes that no memory would be enough for */
    volatile size_t huge = SIZE_MAX / 2 + 1;
    count = 0;
    EXPECT(malloc(huge) == NULL && calloc(huge, 4) == NULL && realloc(NULL, huge) == NULL && memalign(64, huge) == NULL);
    EXPECT(reallocarray(NULL, huge, 4) == NULL && realloc(list, huge) == NULL && pvalloc(SIZE_MAX) == NULL);
    EXPECT_SAY(count == 0, "asked %zu times", count);
}

static void who_always_says_again_is_asked_64_times(void)
{
    in_child(work_without_end, 1000);
    in_child(work_without_end, 500000);
}

/* A thread that begins at the limit asks for its first block, and one that has ended its heap for its last. */
static pthread_key_t late_key;
static size_t *late_size;

static void at_the_end(void *round)
{
    if ((uintptr_t)round < 4) { /* after the library's own, whichever comes first */
        EXPECT(pthread_setspecific(late_key, (void *)((uintptr_t)round + 1)) == 0);
        return;
    }
    cache_fill(MIB);
    void *block = malloc(*late_size);
    EXPECT(block != NULL);
    free(block);
}

static void *first_block(void *size)
{
    late_size = (size_t *)size;
    EXPECT(pthread_setspecific(late_key, (void *)1) == 0);
    void *block = malloc(*late_size);
    EXPECT_SAY(block != NULL && asked_count == 1, "asked %zu times", asked_count);
    free(block);
    return NULL;
}

static void work_beginning(size_t size)
{
    size_t each = 16;
    struct link *rest = NULL;
    pthread_t thread;
    REQUIRE(pthread_key_create(&late_key, at_the_end) == 0);
    cache_fill(MIB);
    take_all(&rest, 100000);
    hak_on_shortage(give_up, &each);
    REQUIRE(pthread_create(&thread, NULL, first_block, &size) == 0);
    pthread_join(thread, NULL);
    EXPECT_SAY(asked_count == 2, "asked %zu times", asked_count);
}

static void a_thread_asks_from_its_first_block_to_its_last(void)
{
    in_child(work_beginning, 12000);
    in_child(work_beginning, 300000);
}

static size_t depth, deepest, inner_count;

static int nested(void *context, size_t bytes)
{
    struct link **reserve = (struct link **)context;
    (void)bytes;
    deepest = ++depth > deepest ? depth : deepest;
    errno = 0;
    EXPECT(malloc(LIMIT_MB * MIB) == NULL && errno == ENOMEM); /* does not ask */
    EXPECT(calloc(LIMIT_MB, MIB) == NULL);
    void *small = malloc(40); /* there may be one */
    free(small);
    inner_count++;
    depth--;
    if (*reserve == NULL)
        return 0;
    free_all(reserve);
    void *block = malloc(5000);
    EXPECT(block != NULL);
    free(block);
    return 1;
}

static void work_nested(size_t size)
{
    struct link *reserve = NULL, *rest = NULL;
    take_all(&reserve, size);
    take_all(&rest, 16);
    hak_on_shortage(nested, &reserve);
    void *block = malloc(size * 2);
    EXPECT(block != NULL && deepest == 1 && inner_count == 1);
    free_all(&rest);
}

static void an_allocation_of_the_callback_does_not_ask_again(void)
{
    in_child(work_nested, 2000);
    in_child(work_nested, 300000);
}

/* By the kernel: the same. */
static void work_under_rlimit(size_t size)
{
    struct link *reserve = NULL;
    size_t count = 0;
    long pages = 0;
    limit_set("0");
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + 64 * MIB;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    take_all(&reserve, size);
    hak_on_shortage(always, &count);
    EXPECT(malloc(size) == NULL && count == 64);
    hak_on_shortage(nested, &reserve);
    void *block = malloc(size);
    EXPECT(block != NULL && inner_count == 1);
    free(block);
}

static void the_kernels_refusal_asks_as_well(void)
{
    in_child(work_under_rlimit, 1000);
    in_child(work_under_rlimit, 2u << 20);
}

/* Threads whose first block finds no memory for a heap. */
static pthread_barrier_t all_begin;
static _Thread_local size_t own_asked;

static int count_own(void *context, size_t bytes)
{
    (void)context, (void)bytes;
    own_asked++;
    return own_asked == 1;
}

static void *first_block_without_heap(void *size)
{
    pthread_barrier_wait(&all_begin);
    void *block = malloc(*(size_t *)size);
    EXPECT_SAY(block != NULL || own_asked == 2, "asked %zu times", own_asked);
    pthread_barrier_wait(&all_begin); /* or the next has the heap that this one leaves */
    return NULL;
}

static void work_without_heaps(size_t size)
{
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    struct link *list = NULL;
    limit_set("0");
    REQUIRE(pthread_barrier_init(&all_begin, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, first_block_without_heap, &size) == 0);
    struct rlimit limit = {16 * MIB, 16 * MIB}; /* below what it has: nothing more */
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    take_all(&list, 65536);
    hak_on_shortage(count_own, NULL);
    pthread_barrier_wait(&all_begin);
    pthread_barrier_wait(&all_begin);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void a_thread_without_a_heap_asks(void)
{
    in_child(work_without_heaps, 100);
    in_child(work_without_heaps, 300000);
}

/* Many threads are short at once, while another sets the callback anew: callback and context fit each other. */
static const char context_a, context_b;
static size_t pairs_seen;
static int paired_a(void *context, size_t bytes)
{
    (void)bytes;
    __atomic_add_fetch(&pairs_seen, 1, __ATOMIC_RELAXED);
    EXPECT(context == &context_a);
    return 0;
}
static int paired_b(void *context, size_t bytes)
{
    (void)bytes;
    __atomic_add_fetch(&pairs_seen, 1, __ATOMIC_RELAXED);
    EXPECT(context == &context_b);
    return 0;
}

static void *fail_often(void *unused)
{
    for (int i = 0; i < 300; i++)
        EXPECT(malloc(LIMIT_MB * MIB) == NULL);
    return unused;
}

static void work_setting(size_t unused)
{
    (void)unused;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    hak_on_shortage(paired_a, (void *)(uintptr_t)&context_a);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, fail_often, NULL) == 0);
    for (int i = 0; i < 200000; i++)
        hak_on_shortage(i % 2 ? paired_a : paired_b, (void *)(uintptr_t)(i % 2 ? &context_a : &context_b));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT_SAY(pairs_seen == THREADS * 300, "%zu", pairs_seen);
}

static void a_callback_gets_its_own_context(void) { in_child(work_setting, 0); }

/* A child has the limit and the callback, also one that is made in the callback. */
static int forking(void *context, size_t bytes)
{
    pid_t child = fork();
    ++*(size_t *)context;
    if (child != 0) {
        int status = child_wait(child, 30);
        EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
        return 0;
    }
    size_t before = *(size_t *)context;
    EXPECT(malloc(bytes) == NULL && *(size_t *)context == before); /* it is in the callback still */
    return 0;
}

static void work_forking(size_t size)
{
    size_t count = 0;
    struct link *list = NULL;
    take_all(&list, size);
    hak_on_shortage(always, &count);
    pid_t child = fork();
    if (child == 0) {
        struct link *more = NULL;
        EXPECT_SAY(take_all(&more, size) == 0 && count >= 64, "asked %zu times", count);
        free_all(&list);
        EXPECT(malloc(size) != NULL);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 30);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    count = 0;
    pid_t self = getpid();
    hak_on_shortage(forking, &count);
    EXPECT(malloc(size) == NULL);
    if (getpid() != self)
        _exit(expect_failure_count != 0);
    EXPECT_SAY(count == 1, "asked %zu times", count);
}

static void a_child_keeps_limit_and_callback(void)
{
    in_child(work_forking, 1000);
    in_child(work_forking, 500000);
}

int main(void)
{
    RUN(every_size_ends_at_the_limit_and_recovers);
    RUN(the_limit_is_set_and_lifted_while_the_program_runs);
    RUN(a_block_grows_by_what_is_left);
    RUN(threads_share_the_limit);
    RUN(who_gives_up_a_cache_gets_its_block);
    RUN(a_block_grows_by_what_the_callback_gave_up);
    RUN(a_thread_asks_from_its_first_block_to_its_last);
    RUN(who_always_says_again_is_asked_64_times);
    RUN(an_allocation_of_the_callback_does_not_ask_again);
    RUN(the_kernels_refusal_asks_as_well);
    RUN(a_thread_without_a_heap_asks);
    RUN(a_callback_gets_its_own_context);
    RUN(a_child_keeps_limit_and_callback);
    return EXPECT_RESULT();
}
