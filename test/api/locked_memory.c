/* locked_memory.c - a program that locks all its memory, now and in future, as databases and audio servers do.
 *
 * Owns:   a child under mlockall; locked pages cannot be given back (MADV_DONTNEED fails), and a reservation
 *         must not be made resident by the lock.
 *
 * ctest: native secure
 */
#include "expect.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* A lock on what comes is granted under any limit, and what is asked for under it refused later. False: not so much may be locked, or nothing. */
static bool may_lock_much(void)
{
    pid_t child = fork();
    if (child == 0) {
        size_t much = (size_t)512 << 20;
        _exit(mlockall(MCL_FUTURE) != 0 || mmap(NULL, much, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    }
    return child_wait(child, 60) == 0;
}

/* From Linux 5.18 on. */
static bool locked_pages_go_back(void)
{
    enum { DONTNEED_LOCKED = 24 };
    char *page = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    bool is_so = madvise(page, 4096, DONTNEED_LOCKED) == 0;
    munmap(page, 4096);
    return is_so;
}

static void work_with_locked_memory(void)
{
    for (int round = 0; round < 3; round++) {
        static void *blocks[3000];
        for (int i = 0; i < 3000; i++) {
            size_t size = (size_t)(i % 100) * 40 + 1 + (i % 300 == 0 ? 500000u : 0u);
            blocks[i] = calloc(1, size);
            REQUIRE(blocks[i] != NULL);
            const char *bytes = (const char *)blocks[i];
            EXPECT(bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
            memset(blocks[i], 0xa5, size);
        }
        for (int i = 0; i < 3000; i++)
            free(blocks[i]);
        malloc_trim(0);
    }
    for (size_t size = 65536; size <= (size_t)16 << 20; size *= 2) {
        unsigned char *block = (unsigned char *)malloc(size);
        REQUIRE(block != NULL);
        memset(block, 0x77, size);
        block = (unsigned char *)realloc(block, size * 2);
        REQUIRE(block != NULL);
        EXPECT(block[0] == 0x77 && block[size - 1] == 0x77);
        free(block);
        block = (unsigned char *)calloc(1, size * 2);
        REQUIRE(block != NULL);
        EXPECT(block[0] == 0 && memcmp(block, block + 1, size * 2 - 1) == 0);
        free(block);
    }
}

static void lock_then_work(int flags)
{
    pid_t child = fork();
    if (child == 0) {
        free(malloc(1));
        if (mlockall(flags) != 0)
            _exit(EXPECT_SKIPPED);
        work_with_locked_memory();
        EXPECT_SAY(!resident_is_known() || resident_kib() < 400000, "%ld KiB resident", resident_kib());
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "flags %d: status %#x", flags, (unsigned)status);
}

static void what_is_there_is_locked(void) { lock_then_work(MCL_CURRENT); }
static void what_comes_is_locked(void) { lock_then_work(MCL_FUTURE); }
static void all_is_locked(void) { lock_then_work(MCL_CURRENT | MCL_FUTURE); }
static void all_is_locked_on_touch(void) { lock_then_work(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT); }

/* --- threads --- */

enum { THREADS = 64 };
static pthread_barrier_t all_there;

static void *hold_a_little(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;
    void *blocks[40];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 40; i++) {
            random = random * 1103515245 + 12345;
            size_t size = (random >> 16) % 3000 + 1;
            blocks[i] = malloc(size);
            REQUIRE(blocks[i] != NULL);
            memset(blocks[i], 1, size);
        }
        for (int i = 0; i < 40; i++)
            free(blocks[i]);
    }
    pthread_barrier_wait(&all_there);
    return NULL;
}

static long status_kib(const char *name)
{
    char line[200];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    fclose(file);
    return kib;
}

/* 3 MB at most are held at a time. The kernel filled each step of data as a whole: 1,000 to 1,400 MB were resident. */
static void what_threads_do_not_touch_is_not_there(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[THREADS];
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 128 * 1024);
        pthread_barrier_init(&all_there, NULL, THREADS + 1);
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
            _exit(EXPECT_SKIPPED);
        for (uintptr_t i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&threads[i], &attributes, hold_a_little, (void *)i) == 0);
        pthread_barrier_wait(&all_there);
        EXPECT_SAY(status_kib("VmRSS:") < 100000, "%ld KiB resident", status_kib("VmRSS:"));
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "status %#x", (unsigned)status);
}

/* A block whose pages moved leaves addresses that are mapped anew, which the kernel filled and locked: all that a vector ever grew through
 * was resident to the end of the process. */
static void what_realloc_moved_away_from_is_not_there(void)
{
    enum { VECTORS = 4, LEAST = 1 << 20, MOST = 32 << 20 };
    pid_t child = fork();
    if (child == 0) {
        char *vector[VECTORS];
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
            _exit(EXPECT_SKIPPED);
        for (int i = 0; i < VECTORS; i++)
            memset(vector[i] = (char *)malloc(LEAST), 1, LEAST);
        for (size_t bytes = LEAST; bytes < MOST; bytes *= 2)
            for (int i = 0; i < VECTORS; i++) {
                vector[i] = (char *)realloc(vector[i], 2 * bytes);
                REQUIRE(vector[i] != NULL);
                EXPECT(vector[i][0] == 1 && vector[i][bytes - 1] == 1);
                memset(vector[i] + bytes, 1, bytes);
            }
        for (int i = 0; i < VECTORS; i++)
            free(vector[i]);
        malloc_trim(0);
        EXPECT_SAY(!locked_pages_go_back() || status_kib("VmRSS:") < 40000, "%ld KiB resident", status_kib("VmRSS:"));
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "status %#x", (unsigned)status);
}

/* mlockall(MCL_CURRENT) fills all that is mapped, what had gone back as well: nothing ever returned that again. */
static void what_had_gone_back_goes_back_again(void)
{
    enum { BLOCKS = 40, BYTES = 4 << 20 };
    pid_t child = fork();
    if (child == 0) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            memset(blocks[i] = (char *)malloc(BYTES), 1, BYTES);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        malloc_trim(0);
        if (mlockall(MCL_CURRENT) != 0)
            _exit(EXPECT_SKIPPED);
        malloc_trim(0);
        EXPECT_SAY(!locked_pages_go_back() || status_kib("VmRSS:") < 80000, "%ld KiB resident", status_kib("VmRSS:"));
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "status %#x", (unsigned)status);
}

/* What is touched is locked, as the program asked for; and no more once it has taken that back. */
static void what_is_touched_is_locked_until_the_program_takes_it_back(void)
{
    enum { BLOCKS = 40, BYTES = 4 << 20 };
    pid_t child = fork();
    if (child == 0) {
        static char *blocks[2][BLOCKS];
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
            _exit(EXPECT_SKIPPED);
        for (int i = 0; i < BLOCKS; i++) {
            blocks[0][i] = (char *)malloc(BYTES);
            REQUIRE(blocks[0][i] != NULL);
            blocks[0][i][BYTES / 2] = 1;
        }
        EXPECT_SAY(status_kib("VmLck:") > BLOCKS * (BYTES >> 10), "%ld KiB locked", status_kib("VmLck:"));
        REQUIRE(munlockall() == 0);
        EXPECT(status_kib("VmLck:") == 0);
        for (int i = 0; i < BLOCKS; i++) {
            blocks[1][i] = (char *)malloc(BYTES);
            REQUIRE(blocks[1][i] != NULL);
            blocks[1][i][BYTES / 2] = 1;
        }
        EXPECT_SAY(status_kib("VmLck:") == 0, "%ld KiB locked", status_kib("VmLck:"));
        for (int i = 0; i < BLOCKS; i++) {
            EXPECT(blocks[0][i][BYTES / 2] == 1 && blocks[1][i][BYTES / 2] == 1);
            free(blocks[0][i]);
            free(blocks[1][i]);
        }
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "status %#x", (unsigned)status);
}

/* The kernel says EAGAIN where no more may be locked: a refusal, not another thread's turn. Processor time, by which a look at
 * the whole window for each malloc shows. */
static void the_limit_on_locked_memory_is_a_refusal(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        free(malloc(1));
        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (limit.rlim_max > 64 << 20)
            limit.rlim_max = 64 << 20;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) || mlockall(MCL_FUTURE) != 0)
            _exit(EXPECT_SKIPPED);
        int count = 0;
        while (count < 200 && malloc(1 << 20))
            count++;
        EXPECT_SAY(count < 200, "%d MiB were given", count);
        clock_t begin = clock();
        for (int i = 0; i < 20; i++)
            EXPECT(malloc(1 << 20) == NULL && errno == ENOMEM);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        EXPECT_SAY(seconds < 1, "20 refusals took %g s", seconds);
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0 || WEXITSTATUS(status) == EXPECT_SKIPPED, "status %#x", (unsigned)status);
}

int main(void)
{
    RUN(the_limit_on_locked_memory_is_a_refusal);
    if (!may_lock_much())
        return expect_failure_count ? EXPECT_RESULT() : EXPECT_SKIPPED;
    RUN(what_is_there_is_locked);
    RUN(what_comes_is_locked);
    RUN(all_is_locked);
    RUN(all_is_locked_on_touch);
    RUN(what_threads_do_not_touch_is_not_there);
    RUN(what_realloc_moved_away_from_is_not_there);
    RUN(what_had_gone_back_goes_back_again);
    RUN(what_is_touched_is_locked_until_the_program_takes_it_back);
    return EXPECT_RESULT();
}
