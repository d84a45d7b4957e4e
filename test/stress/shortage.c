/* shortage.c - four threads live at the edge of memory: allocations fail all the time, nothing is lost or shared.
 *
 * Owns:    a child under RLIMIT_AS and one under HAKMEM_LIMIT_HARD_MB that exec themselves, so that the library starts under the limit.
 * Threads: each keeps its own table full; NULL must come with ENOMEM and frees half of the table. At the end
 *          all is freed and half of what fitted at first must fit again. The callback allocates, and now and then wants another try.
 *
 * ctest: native
 */
#include "stress.h"

#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 4, SLOTS = 20000 };
static double end_seconds;
static uint64_t seed, failures;
static pthread_barrier_t all_there; /* or the first may have taken the last one's stack */

static void *work(void *argument)
{
    struct random_state random = {seed + (uintptr_t)argument};
    static _Thread_local void *blocks[SLOTS / 8];
    enum { COUNT = SLOTS / 8 };
    pthread_barrier_wait(&all_there);
    while (clock_seconds() < end_seconds) {
        size_t i = random_below(&random, COUNT);
        if (blocks[i] != NULL)
            block_free(blocks[i]);
        size_t bytes = size_random(&random) * (random_below(&random, 20) == 0 ? 20 : 1);
        errno = 0;
        blocks[i] = random_below(&random, 8) == 0 ? memalign((size_t)64 << random_below(&random, 8), bytes) : malloc(bytes);
        if (blocks[i] != NULL) {
            block_stamp(blocks[i], bytes, i);
            if (random_below(&random, 16) == 0) {
                struct stamp before = *(struct stamp *)blocks[i];
                size_t more = bytes + random_below(&random, bytes * 2);
                errno = 0;
                void *moved = realloc(blocks[i], more);
                EXPECT(moved != NULL || errno == ENOMEM);
                if (moved != NULL) {
                    EXPECT(((struct stamp *)moved)->owner == before.owner && ((struct stamp *)moved)->bytes == before.bytes);
                    blocks[i] = moved;
                    block_stamp(moved, more, i);
                }
            }
            continue;
        }
        EXPECT_SAY(errno == ENOMEM, "errno %d", errno);
        __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
        for (size_t k = random_below(&random, 2); k < COUNT; k += 2)
            if (blocks[k] != NULL) {
                block_free(blocks[k]);
                blocks[k] = NULL;
            }
    }
    for (size_t i = 0; i < COUNT; i++)
        if (blocks[i] != NULL)
            block_free(blocks[i]);
    return NULL;
}

static int on_shortage(void *context, size_t bytes)
{
    static _Thread_local unsigned depth, count;
    EXPECT(context == &failures && bytes > 0 && depth == 0);
    depth++;
    void *block = malloc(bytes / 4);
    if (block != NULL)
        memset(block, 7, bytes / 4);
    free(block);
    depth--;
    return ++count % 4 == 0;
}

static size_t blocks_that_fit(size_t bytes)
{
    static void *blocks[100000];
    size_t count = 0;
    while (count < 100000 && (blocks[count] = malloc(bytes)) != NULL)
        count++;
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    return count;
}

int main(int argument_count, char **arguments)
{
    (void)arguments;
    if (argument_count == 1) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            setenv("HAKMEM_LIMIT_HARD_MB", "64", 1);
            execl("/proc/self/exe", "shortage", "limited", (char *)NULL);
            return 126;
        }
        int status = child_wait(child, stress_seconds(5) + 60);
        REQUIRE(status == 0);
        struct rlimit limit = {(size_t)160 << 20, (size_t)160 << 20};
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
        execl("/proc/self/exe", "shortage", "limited", (char *)NULL);
        return 126;
    }
    seed = random_seed("shortage");
    end_seconds = clock_seconds() + stress_seconds(5);
    size_t fitted = blocks_that_fit(5000);
    hak_on_shortage(on_shortage, &failures);
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_barrier_init(&all_there, NULL, THREADS);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], &attributes, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT_SAY(failures > 0, "%llu failures", (unsigned long long)failures);
    size_t fits = blocks_that_fit(5000);
    EXPECT_SAY(fits >= fitted / 2, "%zu blocks fitted, then %zu", fitted, fits);
    printf("shortage: %llu failures, %zu blocks of 5000 fitted, then %zu\n", (unsigned long long)failures, fitted, fits);
    return EXPECT_RESULT();
}
