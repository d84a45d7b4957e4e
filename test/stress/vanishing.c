/* vanishing.c - a thread is at each of the library's instructions when another one forks.
 *
 * The thread stops at a breakpoint and waits in its handler; the child, in which it is no more, frees and allocates until it has made the
 * thread's heap anew. What the thread's call was at may be lost; every other block is there, and none is handed out twice.
 *
 * Owns:      SIGTRAP.
 *
 * ctest: native timeout=600 secure
 */
#include "stress.h"

#if defined(__x86_64__) && defined(__GLIBC__)

#include "breakpoints.h"

#include <pthread.h>
#include <ucontext.h>

/* Who goes on: the thread runs, it met its instruction, it shall go on. */
enum turn { RUNS, MET, ENDS };
static volatile enum turn turn;
static size_t chosen;
static double end;

static enum turn turn_seen(void) { return __atomic_load_n(&turn, __ATOMIC_ACQUIRE); }
static void turn_say(enum turn now) { __atomic_store_n(&turn, now, __ATOMIC_RELEASE); }

static void stop(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]--;
    turn_say(MET);
    while (turn_seen() == MET)
        sched_yield();
}

static void *thread_run(void *seed)
{
    struct random_state random = {*(uint64_t *)seed};
    for (unsigned tried = 0; clock_seconds() < end; tried++) {
        if (tried % 16 == 0)
            calls_vary(&random);
        chosen = instruction_draw(&random);
        instruction_arm(chosen);
        for (unsigned n = 0; n < 300 && armed != NULL; n++)
            call(&random);
        instruction_disarm();
        for (unsigned n = 0; n < 20; n++)
            call(&random);
        if (random_below(&random, 16) == 0)
            free_all();
    }
    free_all();
    turn_say(ENDS);
    return NULL;
}

/* The thread is no more; its blocks are ours. */
static void child_run(struct random_state *random)
{
    alarm(60);
    enum { MORE = 60, BYTES_MOST = 3000 };
    static void *more[MORE];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < MORE; i++) {
            size_t bytes = sizeof(struct stamp) + random_below(random, BYTES_MOST);
            block_require(more[i] = malloc(bytes), bytes);
            block_stamp(more[i], bytes, i);
        }
        if (round == 0)
            free_all();
        for (size_t i = 0; i < MORE; i++)
            block_free(more[i]);
    }
    _exit(expect_failure_count != 0);
}

static void children_lose_no_more_than_the_block_of_a_call(void)
{
    struct random_state random = {random_seed("vanishing")};
    uint64_t seed = random_next(&random);
    instructions_find();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = stop;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, NULL);
    end = clock_seconds() + stress_seconds(8);
    unsigned long forks = 0;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, thread_run, &seed) == 0);
    for (enum turn now; (now = turn_seen()) != ENDS;) {
        if (now == RUNS) {
            sched_yield();
            continue;
        }
        instruction_disarm();
        instruction_was_met(chosen);
        pid_t child = fork();
        if (child == 0)
            child_run(&random);
        int status = child_wait(child, 90);
        forks++;
        if (status != 0) {
            EXPECT_SAY(false, "status %#x, instruction %zu", (unsigned)status, chosen);
            _exit(1);
        }
        free(malloc(1 + random_below(&random, 5000))); /* now: nothing is armed */
        turn_say(RUNS);
    }
    pthread_join(thread, NULL);
    printf("%lu forks at %zu instructions\n", forks, met_count);
    EXPECT(met_count > 20);
}

int main(void)
{
    RUN(children_lose_no_more_than_the_block_of_a_call);
    return EXPECT_RESULT();
}

#else

int main(void)
{
    return EXPECT_SKIPPED;
}

#endif
