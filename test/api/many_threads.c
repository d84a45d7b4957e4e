/* many_threads.c - three thousand threads at once, each with blocks of its own and of its neighbour.
 *
 * Owns:    an array of what each thread holds.
 * Threads: all wait for each other twice; in between each frees half of what its neighbour allocated. A
 *          machine that cannot start so many is asked for fewer.
 *
 * ctest: native timeout=240
 */
#include "expect.h"

#include <pthread.h>

enum { THREADS_MAX = 3000, BLOCKS = 20 };
static char *blocks[THREADS_MAX][BLOCKS];
static pthread_barrier_t barrier;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int thread_count;

static size_t block_bytes(int thread, int i)
{
    return (size_t)((thread * 7 + i * 131) % 2500) + 1;
}

static void *live(void *argument)
{
    int self = (int)(uintptr_t)argument;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[self][i] = (char *)malloc(block_bytes(self, i));
        stamp_fill(blocks[self][i], block_bytes(self, i), (uint64_t)(self * BLOCKS + i));
    }
    pthread_mutex_lock(&gate); /* until all have been started, and counted */
    pthread_mutex_unlock(&gate);
    pthread_barrier_wait(&barrier);
    int neighbour = (self + 1) % thread_count;
    for (int i = 0; i < BLOCKS; i += 2) {
        size_t bytes = block_bytes(neighbour, i);
        EXPECT(stamp_check(blocks[neighbour][i], bytes, bytes, (uint64_t)(neighbour * BLOCKS + i)) == SIZE_MAX);
        free(blocks[neighbour][i]);
        blocks[neighbour][i] = NULL;
    }
    pthread_barrier_wait(&barrier);
    for (int i = 1; i < BLOCKS; i += 2) {
        size_t bytes = block_bytes(self, i);
        EXPECT(stamp_check(blocks[self][i], bytes, bytes, (uint64_t)(self * BLOCKS + i)) == SIZE_MAX);
        blocks[self][i] = (char *)realloc(blocks[self][i], bytes * 2);
        free(blocks[self][i]);
    }
    return NULL;
}

static void three_thousand_threads_at_once(void)
{
    static pthread_t threads[THREADS_MAX];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_mutex_lock(&gate);
    for (thread_count = 0; thread_count < THREADS_MAX; thread_count++)
        if (pthread_create(&threads[thread_count], &attributes, live, (void *)(uintptr_t)thread_count) != 0)
            break;
    REQUIRE(thread_count > 100);
    pthread_barrier_init(&barrier, NULL, (unsigned)thread_count);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    printf("many_threads: %d threads\n", thread_count);
}

int main(void)
{
    for (int round = 0; round < 3; round++)
        RUN(three_thousand_threads_at_once);
    return EXPECT_RESULT();
}
