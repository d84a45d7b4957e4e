/* walk.c - hak_walk beside eight threads that exchange blocks: nothing breaks, and what stays is shown, once.
 *
 * Owns:    a table of slots, exchanged atomically; blocks that stay until the end, made by every thread.
 * Threads: seven as in strangers.c; the eighth walks, and frees and allocates as it does.
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 7, SLOTS = 4096, STAY = 3000, STAY_ALL = THREADS * STAY };
static _Atomic(void *) slots[SLOTS];
static void *stays[STAY_ALL];
static unsigned char seen[STAY_ALL];
static atomic_uint ready;
static double end_seconds;
static uint64_t seed;

static void *work(void *argument)
{
    uint64_t self = (uintptr_t)argument, count = 0;
    struct random_state random = {seed + self};
    for (int i = 0; i < STAY; i++) {
        stays[self * STAY + (uint64_t)i] = block_make(&random, self);
        void *between = block_make(&random, self + 100);
        if (i % 8)
            block_free(between);
        else if ((between = atomic_exchange(&slots[random_below(&random, SLOTS)], between)) != NULL)
            block_free(between);
    }
    atomic_fetch_add(&ready, 1);
    while ((count & 255) != 0 || clock_seconds() < end_seconds) {
        size_t i = random_below(&random, SLOTS);
        void *block = random_next(&random) & 7 ? block_make(&random, self * 1000003 + count) : NULL;
        if ((block = atomic_exchange(&slots[i], block)) != NULL)
            block_free(block);
        count++;
    }
    return NULL;
}

static int by_place(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return (x > y) - (x < y);
}

struct walker {
    struct random_state random;
    uint64_t shown;
};

static int look(const struct hak_held *held, void *context)
{
    struct walker *walker = (struct walker *)context;
    EXPECT(held->ptr != NULL && ((uintptr_t)held->ptr & 15) == 0 && held->bytes > 0);
    EXPECT(held->large == (held->bytes > 32896) && held->bytes < 1 << 28); /* no address taken for a size */
    void *const *found = (void *const *)bsearch(&held->ptr, stays, STAY_ALL, sizeof *stays, by_place);
    if (found) {
        EXPECT(seen[found - stays]++ == 0);
        const struct stamp *stamp = (const struct stamp *)held->ptr;
        EXPECT(stamp->mark == stamp_mark(stamp) && stamp->bytes <= held->bytes);
    }
    if (++walker->shown % 64 == 0) {
        void *block = random_next(&walker->random) & 1 ? block_make(&walker->random, walker->shown) : NULL;
        if ((block = atomic_exchange(&slots[random_below(&walker->random, SLOTS)], block)) != NULL)
            block_free(block);
    }
    return 0;
}

static int sum(const struct hak_held *held, void *context)
{
    *(uint64_t *)context += held->bytes;
    return 0;
}

int main(void)
{
    seed = random_seed("walk");
    struct random_state options = {seed};
    options_choose(&options);
    end_seconds = clock_seconds() + stress_seconds(6);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    while (atomic_load(&ready) < THREADS)
        usleep(1000);
    qsort(stays, STAY_ALL, sizeof *stays, by_place);
    struct walker walker = {{seed + 99}, 0};
    uint64_t walks = 0, missed = 0;
    do {
        memset(seen, 0, sizeof seen);
        EXPECT(hak_walk(look, &walker) == 0);
        for (int i = 0; i < STAY_ALL; i++)
            missed += !seen[i];
        walks++;
    } while (clock_seconds() < end_seconds);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* of a slab that somebody has claimed for 20 ms, having been put aside by the system */
    EXPECT_SAY(missed <= walks * STAY_ALL / 1000, "%llu of %llu walks of %d", (unsigned long long)missed, (unsigned long long)walks, STAY_ALL);
    memset(seen, 0, sizeof seen);
    hak_walk(look, &walker);
    for (int i = 0; i < STAY_ALL; i++)
        EXPECT(seen[i] == 1);
    static struct hak_stats stats;
    uint64_t bytes = 0;
    hak_walk(sum, &bytes);
    hak_stats_get(&stats, sizeof stats);
    EXPECT_SAY(bytes == stats.live_bytes, "%llu, not %llu", (unsigned long long)bytes, (unsigned long long)stats.live_bytes);
    for (int i = 0; i < STAY_ALL; i++)
        block_free(stays[i]);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] != NULL)
            block_free(slots[i]);
    printf("walk: %llu walks, %llu blocks shown, %llu missed\n", (unsigned long long)walks, (unsigned long long)walker.shown, (unsigned long long)missed);
    return EXPECT_RESULT();
}
