/* learning.c - strategies duel at a hundred times their speed while threads work, options are set and the process forks.
 *
 * Owns:    nothing; starts itself again with learning in its environment.
 * Threads: three workers, one that reads what is shown; the main thread sets options and forks. A child's lock and
 *          state are void, and it goes on learning by itself.
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 3 };
static atomic_bool stop;
static uint64_t seed;

static void steps(struct random_state *random, uint64_t owner, size_t count)
{
    static __thread void *slots[3000];
    for (size_t step = 0; step < count; step++) {
        size_t i = random_below(random, 3000);
        if (slots[i] != NULL)
            block_free(slots[i]);
        slots[i] = block_make(random, owner + step);
    }
}

static void *work(void *argument)
{
    struct random_state random = {seed + (uintptr_t)argument};
    while (!atomic_load(&stop))
        steps(&random, (uintptr_t)argument << 40, 500);
    return NULL;
}

static void stats_verify(const struct hak_learn_stats *stats)
{
    EXPECT(stats->version == 1);
    if (stats->pid == 0)
        return; /* nobody has looked at the clock yet, or it is written all the time */
    EXPECT_SAY(stats->stage >= HAK_LEARN_LEARN && stats->stage <= HAK_LEARN_FROZEN, "%u", stats->stage);
    EXPECT(stats->rating_count >= 5 && stats->rating_count <= HAK_RATING_COUNT_MAX);
    EXPECT(stats->change_rows >= 1 && stats->change_rows <= HAK_STAGE_CHANGE_COUNT_MAX);
    EXPECT(strcmp(stats->rating[0].strategy, "baseline") == 0 && stats->rating[0].elo == 0);
    for (unsigned i = 1; i < stats->rating_count; i++)
        EXPECT(stats->rating[i].strategy[0] != 0 && stats->rating[i].state <= HAK_RATING_OUT);
    for (unsigned i = 1; i < stats->change_rows; i++)
        EXPECT(stats->change[i].ms >= stats->change[i - 1].ms && stats->change[i].reason[0] != 0);
}

static void *watch(void *argument)
{
    (void)argument;
    uint64_t windows = 0;
    while (!atomic_load(&stop)) {
        struct hak_learn_stats stats;
        hak_learn_stats(&stats, sizeof stats);
        stats_verify(&stats);
        if (stats.pid != 0) {
            EXPECT(stats.windows >= windows);
            windows = stats.windows;
        }
        usleep(300);
    }
    return NULL;
}

EXPECT_UNUSED static void child_live(void)
{
    struct random_state random = {seed * 5};
    struct hak_learn_stats stats = {0};
    double end_seconds = clock_seconds() + 20;
    do {
        steps(&random, 77, 2000);
        hak_learn_stats(&stats, sizeof stats);
    } while ((stats.pid != (unsigned)getpid() || stats.windows < 2) && clock_seconds() < end_seconds);
    stats_verify(&stats);
    EXPECT_SAY(stats.pid == (unsigned)getpid() && stats.windows >= 2, "the child does not learn: %u windows", (unsigned)stats.windows);
    EXPECT(strcmp(stats.change[1].reason, "forked") == 0);
    _exit(expect_failure_count != 0);
}

int main(int count, char **words)
{
    (void)count;
    if (!getenv("HAKMEM_LEARN_HURRY")) {
        setenv("HAKMEM_LEARN_HURRY", "100", 1);
        setenv("HAKMEM_EVO_POLICY", "learn", 1);
        setenv("HAKMEM_LEARN_CONTROLS", "1", 1);
        execv("/proc/self/exe", words);
        return 77;
    }
    seed = random_seed("learning");
    struct random_state random = {seed};
    double end_seconds = clock_seconds() + stress_seconds(7);
    pthread_t threads[THREADS], watcher;
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    REQUIRE(pthread_create(&watcher, NULL, watch, NULL) == 0);
    unsigned children = 0;
    for (unsigned round = 1; clock_seconds() < end_seconds; round++) {
        steps(&random, (uint64_t)round << 30, 20000);
        if (round % 50 == 0)
            EXPECT(hak_option_set("relist_share", random_below(&random, 2) ? "8" : "4") == 0);
#ifndef __SANITIZE_THREAD__ /* the runtime's own allocator hangs in such children */
        if (round % 40 == 0) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0)
                child_live();
            int status = child_wait(child, 40);
            EXPECT_SAY(status == 0, "child: status %#x (-1: hung)", (unsigned)status);
            children++;
        }
#endif
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(watcher, NULL);
    struct hak_learn_stats stats;
    hak_learn_stats(&stats, sizeof stats);
    stats_verify(&stats);
    EXPECT(stats.windows > 3);
    printf("learning: %llu windows, %llu duels, %u children\n", (unsigned long long)stats.windows, (unsigned long long)stats.duels, children);
    return EXPECT_RESULT();
}
