/* signals.c - signal handlers interrupt malloc and free at any instruction and leave by longjmp or allocate.
 *
 * Owns:    a timer signal at a high rate.
 * Why:     not promised to work from handlers, but never to spin or deadlock; a handler that only takes time
 *          must change nothing. The first part checks contents; the second, in a child, only that it ends.
 *
 * ctest: native
 */
#include "stress.h"

#include <setjmp.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static sigjmp_buf escape;
static volatile bool may_escape;

static void tick(int signal_number)
{
    (void)signal_number;
    ticks++;
}

static void tick_and_leave(int signal_number)
{
    (void)signal_number;
    ticks++;
    if (may_escape && ticks % 8 == 0)
        siglongjmp(escape, 1);
}

static void timer_start(void (*handler)(int), int interval_us)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, interval_us}, {0, interval_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void timer_stop(void)
{
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
}

static void *blocks[2000];

static void handlers_that_return_change_nothing(void)
{
    struct random_state random = {random_seed("signals")};
    double end = clock_seconds() + stress_seconds(4) / 2;
    timer_start(tick, 100);
    while (clock_seconds() < end)
        for (int i = 0; i < 1000; i++) {
            size_t k = random_below(&random, 2000);
            if (blocks[k] != NULL)
                block_free(blocks[k]);
            blocks[k] = block_make(&random, k);
        }
    timer_stop();
    for (int i = 0; i < 2000; i++)
        if (blocks[i] != NULL)
            block_free(blocks[i]);
    EXPECT(ticks > 100);
}

/* What a handler leaves behind may be lost, but the program goes on: no lock can be left held. */
static void handlers_that_leave_by_longjmp_never_block(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        double end = clock_seconds() + stress_seconds(4) / 2;
        timer_start(tick_and_leave, 150);
        static volatile uint64_t kept;
        while (clock_seconds() < end) {
            if (sigsetjmp(escape, 1) == 0) {
                may_escape = true;
                for (int i = 0; i < 2000; i++) {
                    void *block = malloc((size_t)(i * 37) % 4000);
                    kept += (uintptr_t)block & 15;
                    free(block);
                }
            }
            may_escape = false;
        }
        timer_stop();
        _exit(kept == 0 ? 0 : 3);
    }
    int status = child_wait(child, stress_seconds(4) + 30);
    EXPECT_SAY(status == 0, "status %#x (-1: hung)", (unsigned)status);
}

int main(void)
{
    RUN(handlers_that_return_change_nothing);
    RUN(handlers_that_leave_by_longjmp_never_block);
    return EXPECT_RESULT();
}
