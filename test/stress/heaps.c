/* heaps.c - threads allocate from several heaps, exchange blocks and free each other's; between barriers one of them clears, destroys or deletes
 * heaps, while the others go on with ordinary blocks, whose batches carry what they freed before.
 *
 * Owns:    a table of slots, exchanged atomically; each block's stamp names its heap.
 * Threads: six; the first decides.
 * ctest: secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, HEAPS = 5, SLOTS = 3000, TURNS = 3000 };
static _Atomic(void *) slots[SLOTS];
static hak_heap_t *_Atomic heaps[HEAPS];
static pthread_barrier_t barrier;
static atomic_int stop;
static double end_seconds;
static uint64_t seed, ended;
static atomic_ullong operations, refused;

/* The heap's, or an ordinary one. */
static void *make(struct random_state *random, size_t h)
{
    size_t bytes = size_random(random);
    void *block;
    hak_heap_t *heap = h < HEAPS ? atomic_load(&heaps[h]) : NULL;
    if (!heap)
        block = malloc(bytes);
    else if (random_next(random) & 15)
        block = hak_heap_malloc(heap, bytes);
    else if (random_next(random) & 1)
        block = hak_heap_calloc(heap, 1, bytes);
    else
        block = hak_heap_aligned_alloc(heap, (size_t)16 << random_below(random, 9), bytes);
    if (!block) {
        EXPECT(heap && errno == ENOMEM);
        atomic_fetch_add(&refused, 1);
        return NULL;
    }
    block_stamp(block, bytes, h);
    return block;
}

static void one_turn(struct random_state *random, size_t heap_count)
{
    size_t i = random_below(random, SLOTS);
    void *block = NULL, *old;
    switch (random_next(random) & 7) {
    case 0: case 1: case 2:
        break;
    case 3:
        if ((block = atomic_exchange(&slots[i], NULL)) != NULL) {
            block_verify(block, sizeof(struct stamp));
            struct stamp was = *(struct stamp *)block;
            size_t bytes = size_random(random);
            void *moved = realloc(block, bytes);
            if (moved) {
                EXPECT(((struct stamp *)moved)->owner == was.owner);
                block = moved;
                block_stamp(block, bytes, was.owner);
                EXPECT(hak_heap_of(block) == (was.owner < HEAPS ? atomic_load(&heaps[was.owner]) : NULL));
            }
        }
        break;
    default:
        block = make(random, random_below(random, heap_count + 1) < heap_count ? random_below(random, heap_count) : HEAPS);
    }
    if ((old = atomic_exchange(&slots[i], block)) != NULL)
        block_free(old);
}

/* No block of theirs is used any more; those of a deleted one are ordinary. */
static void heaps_end(struct random_state *random)
{
    for (size_t h = 0; h < HEAPS; h++) {
        uint64_t how = random_next(random) % 5;
        hak_heap_t *heap = atomic_load(&heaps[h]);
        if (how > 2)
            continue;
        uint64_t count = 0;
        struct hak_heap_stats stats;
        for (int i = 0; i < SLOTS; i++) {
            void *block = atomic_load(&slots[i]);
            if (block == NULL || ((struct stamp *)block)->owner != h)
                continue;
            block_verify(block, sizeof(struct stamp));
            count++;
            if (how == 2)
                block_stamp(block, ((struct stamp *)block)->bytes, HEAPS);
            else
                atomic_store(&slots[i], NULL);
        }
        hak_heap_stats_get(heap, &stats, sizeof stats);
        EXPECT_SAY(stats.live_count == count, "%llu, not %llu", (unsigned long long)stats.live_count, (unsigned long long)count);
        if (how == 0) {
            hak_heap_clear(heap);
            hak_heap_stats_get(heap, &stats, sizeof stats);
            EXPECT_SAY(stats.live_count == 0, "%llu", (unsigned long long)stats.live_count);
        } else {
            if (how == 1)
                hak_heap_destroy(heap);
            else
                hak_heap_delete(heap);
            atomic_store(&heaps[h], hak_heap_new(random_next(random) & 1 ? 0 : (size_t)8 << 20));
        }
        ended++;
    }
}

static void *work(void *argument)
{
    uint64_t self = (uintptr_t)argument;
    struct random_state random = {seed + self};
    uint64_t count = 0;
    for (uint64_t round = 0; !atomic_load(&stop); round++) {
        for (int i = 0; i < TURNS; i++, count++)
            one_turn(&random, HEAPS);
        pthread_barrier_wait(&barrier);
        if (self == 0) {
            heaps_end(&random);
            atomic_store(&stop, clock_seconds() >= end_seconds);
        } else {
            for (int i = 0; i < TURNS; i++) { /* visits and chores, which flush what it freed */
                void *some[4];
                for (int k = 0; k < 4; k++)
                    some[k] = malloc(size_random(&random) % 40000);
                for (int k = 0; k < 4; k++)
                    free(some[k]);
            }
            if (self == 1)
                hak_collect();
        }
        pthread_barrier_wait(&barrier);
    }
    atomic_fetch_add(&operations, count);
    return NULL;
}

/* Threads come and go, and leave what they had of heaps. */
static void *comes(void *argument)
{
    struct random_state random = {seed + (uintptr_t)argument};
    for (int i = 0; i < 500; i++)
        one_turn(&random, HEAPS);
    return NULL;
}

int main(void)
{
    seed = random_seed("heaps");
    struct random_state options = {seed};
    options_choose(&options);
    end_seconds = clock_seconds() + stress_seconds(6) * 3 / 4;
    for (int h = 0; h < HEAPS; h++)
        atomic_store(&heaps[h], hak_heap_new(h % 2 ? 0 : (size_t)16 << 20));
    REQUIRE(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    end_seconds = clock_seconds() + stress_seconds(6) / 4;
    for (uintptr_t round = 0; clock_seconds() < end_seconds; round++) {
        for (uintptr_t i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&threads[i], NULL, comes, (void *)(100 + round * THREADS + i)) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        heaps_end(&options);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] != NULL)
            block_free(slots[i]);
    hak_collect();
    for (int h = 0; h < HEAPS; h++) {
        struct hak_heap_stats stats;
        hak_heap_stats_get(heaps[h], &stats, sizeof stats);
        EXPECT(stats.live_count == 0);
        hak_heap_destroy(heaps[h]);
    }
    static struct hak_stats all;
    hak_stats_get(&all, sizeof all);
    EXPECT_SAY(all.heap_count < 200, "%llu heaps", (unsigned long long)all.heap_count);
    printf("heaps: %llu operations, %llu ended, %llu refused, %llu heaps\n", (unsigned long long)operations, (unsigned long long)ended,
           (unsigned long long)refused, (unsigned long long)all.heap_count);
    return EXPECT_RESULT();
}
