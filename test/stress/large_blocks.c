/* large_blocks.c - four threads with blocks of 32 KiB to 24 MiB: growth, shrinking, frees by strangers.
 *
 * Owns:    a small table of slots, as strangers.c.
 * Threads: all do the same. Every page of a block carries its number and owner, so that a page moved
 *          wrongly, given back too early or shared is found; calloc's pages are checked for zero.
 * ctest: secure
 */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, SLOTS = 24, PAGE = 4096 };
struct large {
    size_t bytes;
    uint64_t owner;
};
static _Atomic(struct large *) slots[SLOTS];
static double end_seconds;
static uint64_t seed;
static atomic_ullong operations;

static void pages_stamp(struct large *large, size_t bytes, uint64_t owner)
{
    large->bytes = bytes;
    large->owner = owner;
    for (size_t at = PAGE; at + 8 <= bytes; at += PAGE)
        *(uint64_t *)(void *)((char *)large + at) = owner + at;
}

static void pages_verify(const struct large *large, size_t bytes)
{
    for (size_t at = PAGE; at + 8 <= bytes; at += PAGE) {
        uint64_t seen = *(const uint64_t *)(const void *)((const char *)large + at);
        if (seen != large->owner + at) {
            EXPECT_SAY(false, "%p of %zu bytes: offset %zu holds %#llx", (const void *)large, large->bytes, at, (unsigned long long)seen);
            _exit(1);
        }
    }
}

static size_t large_size(struct random_state *random)
{
    size_t bits = random_below(random, 40) == 0 ? 24 : 16 + random_below(random, 5);
    return 32769 + random_below(random, (size_t)1 << bits);
}

static struct large *large_make(struct random_state *random, uint64_t owner)
{
    size_t bytes = large_size(random);
    struct large *large;
    if (random_below(random, 4) == 0) {
        large = (struct large *)calloc(1, bytes);
        REQUIRE(large != NULL);
        for (size_t at = 0; at + 8 <= bytes; at += PAGE)
            if (*(uint64_t *)(void *)((char *)large + at) != 0) {
                EXPECT_SAY(false, "calloc(%zu) is dirty at %zu", bytes, at);
                _exit(1);
            }
    } else if (random_below(random, 6) == 0) {
        size_t alignment = (size_t)4096 << random_below(random, 11);
        large = (struct large *)memalign(alignment, bytes);
        EXPECT(((uintptr_t)large & (alignment - 1)) == 0);
    } else {
        large = (struct large *)malloc(bytes);
    }
    REQUIRE(large != NULL);
    pages_stamp(large, bytes, owner);
    return large;
}

static void *work(void *argument)
{
    uint64_t self = (uintptr_t)argument;
    struct random_state random = {seed + self};
    uint64_t count = 0;
    while (clock_seconds() < end_seconds) {
        size_t i = random_below(&random, SLOTS);
        struct large *large = atomic_exchange(&slots[i], NULL);
        uint64_t owner = (self << 56) + (count << 24);
        switch (large == NULL ? 0 : random_below(&random, 5)) {
        case 0: case 1:
            if (large != NULL) {
                pages_verify(large, large->bytes);
                free(large);
            }
            large = large_make(&random, owner);
            break;
        case 2: case 3: {
            size_t to = large_size(&random), kept = to < large->bytes ? to : large->bytes;
            pages_verify(large, large->bytes);
            large = (struct large *)realloc(large, to);
            REQUIRE(large != NULL);
            pages_verify(large, kept);
            pages_stamp(large, to, owner);
            break;
        }
        case 4: {
            size_t more = hak_expand(large, large->bytes + random_below(&random, 500000));
            pages_verify(large, large->bytes);
            if (more != 0)
                pages_stamp(large, more, owner);
            break;
        }
        }
        struct large *old = atomic_exchange(&slots[i], large);
        if (old != NULL) {
            pages_verify(old, old->bytes);
            free(old);
        }
        if (++count % 500 == 0)
            malloc_trim(0);
    }
    atomic_fetch_add(&operations, count);
    return NULL;
}

int main(void)
{
    seed = random_seed("large_blocks");
    struct random_state options = {seed};
    options_choose(&options);
    end_seconds = clock_seconds() + stress_seconds(6);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        free(slots[i]);
    printf("large_blocks: %llu operations\n", (unsigned long long)operations);
    return EXPECT_RESULT();
}
