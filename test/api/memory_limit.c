/* memory_limit.c - when address space ends, allocation gives NULL and ENOMEM, and recovers after frees.
 *
 * Owns:   children, each under its own RLIMIT_AS or RLIMIT_DATA.
 * Method: a child lowers its limit (before or after its first allocation is the library's affair: the
 *         library has reserved its region by then), takes all there is in one block size, frees, takes again.
 *         Programs run in 64 MiB, says the README. That case execs itself, so that start-up is under the limit too.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void limit_set(size_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* A list of blocks, each linked by its own first word, so that it needs no memory elsewhere. */
struct link {
    struct link *next;
};

static size_t take_all(struct link **list, size_t size, size_t count_max)
{
    size_t count = 0;
    while (count < count_max) {
        errno = 0;
        struct link *block = (struct link *)malloc(size);
        if (block == NULL) {
            EXPECT_SAY(errno == ENOMEM, "errno %d", errno);
            break;
        }
        memset(block, 0xa5, size < 4096 ? size : 4096);
        block->next = *list;
        *list = block;
        count++;
    }
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

static void exhaust_and_recover(size_t size, size_t budget_bytes)
{
    struct link *list = NULL;
    size_t count = take_all(&list, size, SIZE_MAX);
    EXPECT_SAY(count * size >= budget_bytes / 4, "%zu blocks of %zu in %zu bytes", count, size, budget_bytes);
    /* Everything else fails cleanly, or succeeds from what is free inside: both without a crash. */
    errno = 0;
    EXPECT(malloc(budget_bytes) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(calloc(budget_bytes / 16, 16) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(memalign(4096, budget_bytes) == NULL && errno == ENOMEM);
    void *untouched = NULL;
    errno = 0;
    EXPECT(posix_memalign(&untouched, 64, budget_bytes) == ENOMEM && untouched == NULL);
    EXPECT(errno == ENOMEM); /* not documented, but glibc's own test reads it */
    if (list != NULL) {
        errno = 0;
        EXPECT(realloc(list, budget_bytes) == NULL && errno == ENOMEM);
    }
    free_all(&list);
    size_t again = take_all(&list, size, SIZE_MAX);
    EXPECT_SAY(again + again / 8 + 8 >= count, "%zu blocks of %zu, then only %zu", count, size, again);
    free_all(&list);
    /* Memory freed in one size serves others. */
    static const size_t others[] = {24, 1000, 20000, 300000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t bytes = take_all(&list, others[i], budget_bytes / 4 / others[i]) * others[i];
        EXPECT_SAY(bytes + others[i] >= budget_bytes / 8, "%zu bytes in blocks of %zu after %zu", bytes, others[i], size);
        free_all(&list);
    }
}

static void *exhaust_in_thread(void *unused)
{
    for (int i = 0; i < 5; i++) {
        struct link *list = NULL;
        take_all(&list, 3000, SIZE_MAX);
        free_all(&list);
    }
    return unused;
}

static void in_child(void (*work)(size_t), size_t size)
{
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        work(size);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "status %#x with size %zu", (unsigned)status, size);
    if (status != 0)
        expect_failure_count++;
}

/* What the process has now, plus `bytes`. */
static size_t address_space_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A program shrinks its blocks when memory is short, and few look whether that worked. */
extern void free_sized(void *block, size_t bytes);
static void work_shrinking(size_t unused)
{
    (void)unused;
    static const size_t from[] = {2u << 20, 2u << 20, 100000, 30000, 3000, 1000}, to[] = {50000, 20000, 300, 70, 1000, 24};
    enum { COUNT = sizeof from / sizeof *from };
    static const size_t sizes[] = {1u << 20, 60000, 20000, 3000, 1024, 500, 304, 200, 80, 64, 32, 16};
    unsigned char *blocks[COUNT];
    struct link *list = NULL;
    limit_set(address_space_bytes() + ((size_t)64 << 20));
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = (unsigned char *)malloc(from[i]);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], (int)i + 1, from[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        take_all(&list, sizes[i], SIZE_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        errno = 77;
        unsigned char *shrunk = (unsigned char *)realloc(blocks[i], to[i]);
        EXPECT_SAY(shrunk != NULL && errno == 77, "%zu to %zu: errno %d", from[i], to[i], errno);
        if (shrunk == NULL)
            continue;
        EXPECT(malloc_usable_size(shrunk) >= to[i] && shrunk[0] == i + 1 && shrunk[to[i] - 1] == i + 1);
        free_sized(shrunk, to[i]); /* which knows that a block may be larger now */
    }
    free_all(&list);
}

static void a_block_that_cannot_become_smaller_stays(void)
{
    in_child(work_shrinking, 0);
}

static void work_under_self_exec(size_t size)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", size);
    limit_set((size_t)192 << 20);
    execl("/proc/self/exe", "memory_limit", text, (char *)NULL);
    _exit(126);
}

static void every_block_size_ends_in_enomem_and_recovers(void)
{
    static const size_t sizes[] = {16, 64, 500, 1024, 3000, 20000, 40000, 300000, 3u << 20, 10u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_child(work_under_self_exec, sizes[i]);
}

static void work_in_threads(size_t unused)
{
    (void)unused;
    limit_set((size_t)192 << 20);
    execl("/proc/self/exe", "memory_limit", "threads", (char *)NULL);
    _exit(126);
}
static void threads_that_exhaust_memory_together_recover(void) { in_child(work_in_threads, 0); }

static void work_in_64_mib(size_t unused)
{
    (void)unused;
    limit_set((size_t)64 << 20);
    execl("/proc/self/exe", "memory_limit", "small", (char *)NULL);
    _exit(126);
}
static void a_program_starts_and_works_in_64_mib(void) { in_child(work_in_64_mib, 0); }

/* Servers run under limits of more than 64 GiB, too, and what they may have they get. */
static void work_in_200_gib(size_t unused)
{
    (void)unused;
    limit_set((size_t)200 << 30);
    execl("/proc/self/exe", "memory_limit", "wide", (char *)NULL);
    _exit(126);
}
static void a_wide_limit_ends_nothing_before_it(void)
{
    int mode = 0;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL && fscanf(file, "%d", &mode) == 1 && mode != 2) /* there it is the kernel that refuses */
        in_child(work_in_200_gib, 0);
    if (file != NULL)
        fclose(file);
}

/* systemd's LimitDATA: the chunks of threads that hold little counted as a whole, 1.9 MB a thread. */
static pthread_barrier_t all_hold;
static void *hold_little(void *unused)
{
    enum { COUNT = 100 };
    char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = (char *)malloc(16 + i * 13);
        EXPECT(blocks[i] != NULL);
        if (blocks[i] != NULL)
            memset(blocks[i], 1, 16 + i * 13);
    }
    pthread_barrier_wait(&all_hold);
    for (size_t i = 0; i < COUNT; i++)
        free(blocks[i]);
    return unused;
}
static void many_threads_hold_little(void)
{
    enum { THREADS = 100 };
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all_hold, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], &attributes, hold_little, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}
static void work_under_data_limit(size_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
    execl("/proc/self/exe", "memory_limit", "data", (char *)NULL);
    _exit(126);
}
static void a_limit_of_data_counts_as_well(void) { in_child(work_under_data_limit, (size_t)100 << 20); }

/* What would describe the block stayed mapped: 33 MiB, of which a page each 4 MiB was resident. */
static void refuse_a_large_block(void)
{
    size_t before = address_space_bytes(), after;
    for (int i = 0; i < 3; i++) {
        errno = 0;
        EXPECT(malloc((size_t)1022 << 20) == NULL && errno == ENOMEM);
    }
    after = address_space_bytes();
    EXPECT_SAY(after < before + ((size_t)4 << 20), "%zu bytes, then %zu", before, after);
    char *less = (char *)malloc((size_t)900 << 20);
    EXPECT(less != NULL);
    free(less);
    malloc_trim(0);
    /* nor of its bytes those that came before the last */
    EXPECT(mmap(NULL, (size_t)500 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    before = address_space_bytes();
    EXPECT(malloc((size_t)900 << 20) == NULL);
    after = address_space_bytes();
    EXPECT_SAY(after < before + ((size_t)4 << 20), "%zu bytes, then %zu", before, after);
}
static void work_in_1_gib(size_t unused)
{
    (void)unused;
    limit_set((size_t)1 << 30);
    execl("/proc/self/exe", "memory_limit", "refused", (char *)NULL);
    _exit(126);
}
static void what_is_refused_leaves_nothing_behind(void) { in_child(work_in_1_gib, 0); }

/* What a program frees and takes again was kept mapped, a whole peak of it, and the program's own mmap and thread stacks were refused. */
static void take_again_and_again(void)
{
    for (int round = 0; round < 20; round++) {
        char *block = (char *)malloc((size_t)300 << 20);
        REQUIRE(block != NULL);
        for (size_t at = 0; at < (size_t)300 << 20; at += 4096)
            block[at] = 1;
        free(block);
    }
    EXPECT(mmap(NULL, (size_t)750 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
static void take_small_ones_again(void)
{
    struct link *list = NULL;
    for (int round = 0; round < 12; round++) {
        REQUIRE(take_all(&list, 1000, 300000) == 300000);
        free_all(&list);
    }
    EXPECT(mmap(NULL, (size_t)750 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
static void work_again_in_1_gib(size_t is_small)
{
    limit_set((size_t)1 << 30);
    execl("/proc/self/exe", "memory_limit", is_small ? "again_small" : "again", (char *)NULL);
    _exit(126);
}
static void what_is_freed_is_the_programs_to_map(void)
{
    in_child(work_again_in_1_gib, 0);
    in_child(work_again_in_1_gib, 1);
}

static void work_with_late_limit(size_t size)
{
    free(malloc(1));
    limit_set(address_space_bytes() + ((size_t)64 << 20));
    struct link *list = NULL;
    for (int i = 0; i < 3; i++) {
        take_all(&list, size, ((size_t)1 << 30) / size);
        free_all(&list);
    }
}
static void a_limit_set_late_is_no_harm(void)
{
    static const size_t sizes[] = {100, 5000, 100000, 8u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_child(work_with_late_limit, sizes[i]);
}

int main(int argument_count, char **arguments)
{
    if (argument_count > 1 && strcmp(arguments[1], "threads") == 0) {
        pthread_t threads[3];
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 256 * 1024);
        for (int i = 0; i < 3; i++)
            REQUIRE(pthread_create(&threads[i], &attributes, exhaust_in_thread, NULL) == 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        exhaust_in_thread(NULL);
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "small") == 0) {
        struct link *list = NULL;
        EXPECT(take_all(&list, 1000, 20000) == 20000);
        free_all(&list);
        EXPECT(take_all(&list, 100000, 150) == 150);
        free_all(&list);
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "data") == 0) {
        many_threads_hold_little();
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "refused") == 0) {
        refuse_a_large_block();
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "again") == 0) {
        take_again_and_again();
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "again_small") == 0) {
        take_small_ones_again();
        return EXPECT_RESULT();
    }
    if (argument_count > 1 && strcmp(arguments[1], "wide") == 0) {
        size_t count = 0, wanted = (size_t)80 << 10; /* of 1 MiB, untouched */
        while (count < wanted && malloc((size_t)1 << 20) != NULL)
            count++;
        EXPECT_SAY(count == wanted, "%zu MiB", count);
        return EXPECT_RESULT();
    }
    if (argument_count > 1) {
        exhaust_and_recover(strtoul(arguments[1], NULL, 10), (size_t)192 << 20);
        return EXPECT_RESULT();
    }
    RUN(every_block_size_ends_in_enomem_and_recovers);
    RUN(what_is_refused_leaves_nothing_behind);
    RUN(threads_that_exhaust_memory_together_recover);
    RUN(a_program_starts_and_works_in_64_mib);
    RUN(a_wide_limit_ends_nothing_before_it);
    RUN(a_limit_of_data_counts_as_well);
    RUN(what_is_freed_is_the_programs_to_map);
    RUN(a_limit_set_late_is_no_harm);
    RUN(a_block_that_cannot_become_smaller_stays);
    return EXPECT_RESULT();
}
