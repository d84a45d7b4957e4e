/* locked_memory.c - a program that locks all its memory, now and in future, as databases and audio servers do.
 *
 * Owns:   a child under mlockall; locked pages cannot be given back (MADV_DONTNEED fails), and a reservation
 *         must not be made resident by the lock.
 *
 * ctest: native
 */
#include "expect.h"

#include <sys/mman.h>
#include <sys/resource.h>

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
    RUN(what_is_there_is_locked);
    RUN(what_comes_is_locked);
    RUN(all_is_locked);
    RUN(all_is_locked_on_touch);
    RUN(the_limit_on_locked_memory_is_a_refusal);
    return EXPECT_RESULT();
}
