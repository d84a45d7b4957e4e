/* fork_steal.c - in a child one thread takes what idle heaps keep, while the survivor rebuilds the heaps of those that vanished.
 *
 * 40 threads keep a few spans each; in the child a thread trims and the survivor asks for new slabs. A heap was open to the first before
 * the second had done with its list: both went through it, and a correct program was told of a double free, one child in 15 to 40.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 40, CHILDREN = 200, SIZES = 6, EACH = 4, SMALL = 4000 };
static pthread_barrier_t is_ready, is_over;
static atomic_int is_trimming, is_done;

static void spans_come_and_go(void)
{
    char *spans[SIZES * EACH];
    for (size_t i = 0; i < SIZES * EACH; i++) {
        spans[i] = (char *)malloc((i / EACH + 1) * 65536 - 100);
        REQUIRE(spans[i] != NULL);
        memset(spans[i], 1, 100);
    }
    for (size_t i = 0; i < SIZES * EACH; i++)
        free(spans[i]);
}

static void *keep(void *unused)
{
    spans_come_and_go();
    spans_come_and_go();
    pthread_barrier_wait(&is_ready);
    pthread_barrier_wait(&is_over);
    return unused;
}

static void *trim(void *unused)
{
    atomic_store(&is_trimming, 1);
    while (!atomic_load(&is_done))
        malloc_trim(0);
    return unused;
}

static void child_run(unsigned number)
{
    static void *blocks[SMALL];
    pthread_t thread;
    alarm(20);
    REQUIRE(pthread_create(&thread, NULL, trim, NULL) == 0);
    while (!atomic_load(&is_trimming))
        continue;
    usleep(number % 30 * 10);
    for (int i = 0; i < SMALL; i++)
        REQUIRE((blocks[i] = malloc(48)) != NULL); /* the first slab asks for the rebuilding */
    for (int c = 0; c < 20; c++)
        for (int i = 0; i < 40; i++)
            REQUIRE((blocks[i] = malloc(100 + 48 * (size_t)c)) != NULL);
    usleep(2000);
    atomic_store(&is_done, 1);
    pthread_join(thread, NULL);
    _exit(0);
}

static void the_survivor_and_a_thief_share_nothing(void)
{
    pthread_t threads[THREADS];
    int broken = 0, status = 0;
    pthread_barrier_init(&is_ready, NULL, THREADS + 1);
    pthread_barrier_init(&is_over, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, keep, NULL) == 0);
    pthread_barrier_wait(&is_ready);
    for (unsigned i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0)
            child_run(i);
        REQUIRE(waitpid(child, &status, 0) == child);
        broken += status != 0;
    }
    EXPECT_SAY(broken == 0, "%d of %d children broke, the last status is %#x", broken, CHILDREN, (unsigned)status);
    pthread_barrier_wait(&is_over);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    RUN(the_survivor_and_a_thief_share_nothing);
    return EXPECT_RESULT();
}
