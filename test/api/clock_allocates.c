/* clock_allocates.c - the program has a clock of its own, which allocates: libfaketime's does while it looks for the system's. The
 * library has the kernel's.
 *
 * Owns:   itself, started again under each kind of watching; clock_gettime().
 *
 * ctest: native
 */
#include "expect.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static _Thread_local int depth;
static int deepest;

/* Not clock_gettime by its declaration, which says that it calls nobody back. */
extern int clock_of_program(clockid_t clock, struct timespec *now) __asm__("clock_gettime");
int clock_of_program(clockid_t clock, struct timespec *now)
{
    void *volatile blocks[3];
    if (++depth > deepest)
        deepest = depth;
    if (depth > 100)
        abort();
    for (int i = 0; i < 3; i++)
        blocks[i] = malloc(100 + (size_t)i * 2000);
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
    depth--;
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static void blocks_come_and_go(void)
{
    static void *blocks[1000];
    for (int i = 0; i < 200000; i++) {
        free(blocks[i % 1000]);
        blocks[i % 1000] = malloc(1 + (size_t)i % 5000);
        EXPECT(blocks[i % 1000] != NULL);
    }
    EXPECT_SAY(deepest == 0, "the library asks it: %d calls deep", deepest);
    struct timespec now;
    EXPECT(clock_of_program(CLOCK_MONOTONIC, &now) == 0);
}

int main(int count, char **words)
{
    static const char *const OPTIONS[] = {"HAKMEM_STATS=0", "HAKMEM_RECORD=/dev/null", "HAKMEM_GUARD=1", "HAKMEM_PURGE_DELAY_MS=20", "HAKMEM_EVO_POLICY=learn"};
    if (count == 2) {
        RUN(blocks_come_and_go);
        return EXPECT_RESULT();
    }
    setenv("HAKMEM_SAMPLE_BYTES", "4096", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        pid_t child = fork();
        if (child == 0) {
            putenv((char *)(uintptr_t)OPTIONS[i]);
            execl("/proc/self/exe", words[0], "run", (char *)NULL);
            _exit(127);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s: status %#x", OPTIONS[i], status);
    }
    return expect_failure_count != 0;
}
