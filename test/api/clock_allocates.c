/* clock_allocates.c - the program has a clock of its own, which allocates: libfaketime's does while it looks for the system's. The
 * library has the kernel's, also where the system says that there is no code for it in the process (valgrind, qemu-user).
 *
 * Owns:   itself, started again under each kind of watching; clock_gettime().
 *
 * ctest: native
 */
#include "expect.h"

#include <sys/auxv.h>
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

/* The program's own, too, so that one entry can be left out. */
extern char **environ;
static int hides_code;
extern unsigned long getauxval_of_program(unsigned long type) __asm__("getauxval");
unsigned long getauxval_of_program(unsigned long type)
{
    char **at = environ;
    while (at && *at)
        at++;
    if (at && !(hides_code && type == AT_SYSINFO_EHDR))
        for (const unsigned long *entry = (const unsigned long *)(at + 1); entry[0] != AT_NULL; entry += 2)
            if (entry[0] == type)
                return entry[1];
    errno = ENOENT;
    return 0;
}

static void blocks_come_and_go(void)
{
    static void *blocks[1000];
    for (int i = 0; i < 200000; i++) {
        errno = 4711;
        free(blocks[i % 1000]);
        blocks[i % 1000] = malloc(1 + (size_t)i % 5000);
        EXPECT(blocks[i % 1000] != NULL);
        EXPECT_SAY(errno == 4711, "errno %d", errno);
    }
    EXPECT_SAY(deepest == 0, "the library asks it: %d calls deep", deepest);
    struct timespec now;
    EXPECT(clock_of_program(CLOCK_MONOTONIC, &now) == 0);
}

int main(int count, char **words)
{
    static const char *const OPTIONS[] = {"HAKMEM_STATS=0", "HAKMEM_RECORD=/dev/null", "HAKMEM_GUARD=1", "HAKMEM_PURGE_DELAY_MS=20", "HAKMEM_EVO_POLICY=learn"};
    if (count == 2) {
        hides_code = words[1][0] == '1';
        RUN(blocks_come_and_go);
        return EXPECT_RESULT();
    }
    setenv("HAKMEM_SAMPLE_BYTES", "4096", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    for (size_t i = 0; i < 2 * (sizeof OPTIONS / sizeof *OPTIONS); i++) {
        pid_t child = fork();
        if (child == 0) {
            putenv((char *)(uintptr_t)OPTIONS[i / 2]);
            execl("/proc/self/exe", words[0], i % 2 ? "1" : "0", (char *)NULL);
            _exit(127);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s%s: status %#x", OPTIONS[i / 2], i % 2 ? ", no code" : "", status);
    }
    return expect_failure_count != 0;
}
