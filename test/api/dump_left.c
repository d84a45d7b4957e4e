/* dump_left.c - a signal handler leaves an allocation by siglongjmp while that writes a dump on request: later requests are answered.
 *
 * Method: a timer's signal comes all the time, and leaves once the dump's unfinished file is there.
 * ctest: native
 */
#include "expect.h"

#include "../../src/watch/published.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { TRIES = 100, LEFT_ENOUGH = 5, NOBODY_LOOKED = 12345 };
static char path[200], fresh[sizeof path + 32];
static sigjmp_buf away;
static volatile sig_atomic_t may_leave;

static void leaves(int signal)
{
    (void)signal;
    if (may_leave && access(fresh, F_OK) == 0) {
        may_leave = 0;
        siglongjmp(away, 1);
    }
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void work(void)
{
    void *block[70];
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 70; k++)
            block[k] = malloc(64);
        for (int k = 0; k < 70; k++)
            free(block[k]);
    }
}

/* The answer to a request for a dump; the program works meanwhile. */
static int ask(double seconds)
{
    struct hak_control *control = &hakmem_published.control;
    snprintf(control->path, sizeof control->path, "%s", path);
    control->command = HAK_CONTROL_DUMP;
    uint32_t request = control->request + 1;
    double end_s = now_s() + seconds;
    __atomic_store_n(&control->request, request, __ATOMIC_RELEASE);
    do {
        work();
        if (__atomic_load_n(&control->seen, __ATOMIC_ACQUIRE) == request)
            return (int)control->result;
    } while (now_s() < end_s);
    return NOBODY_LOOKED;
}

static void requests_are_answered_after_a_dump_was_left(void)
{
    TEMPORARY(path, "hakmem-dump-left.");
    snprintf(path + strlen(path), sizeof path - strlen(path), "%d", (int)getpid());
    snprintf(fresh, sizeof fresh, "%s.%d~", path, (int)getpid() % 1000000); /* as in src/watch/dump.c */
    REQUIRE(ask(20) == 0);
    signal(SIGALRM, leaves);
    volatile int left = 0, bad = 0;
    for (volatile int i = 0; i < TRIES && left < LEFT_ENOUGH && !bad; i++) {
        struct itimerval often = {{0, 30}, {0, 30 + i % 10}}, never = {{0, 0}, {0, 0}};
        if (sigsetjmp(away, 1) == 0) {
            may_leave = 1;
            setitimer(ITIMER_REAL, &often, NULL);
            ask(0.5);
        } else {
            left++;
        }
        may_leave = 0;
        setitimer(ITIMER_REAL, &never, NULL);
        bad = ask(10);
    }
    EXPECT_SAY(bad == 0, "%d after %d calls that were left", bad, left);
    EXPECT_SAY(left >= LEFT_ENOUGH, "%d calls were left", left);
    unlink(path);
}

int main(void)
{
    RUN(requests_are_answered_after_a_dump_was_left);
    return expect_failure_count != 0;
}
