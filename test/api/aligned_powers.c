/* aligned_powers.c - alignments of more than a line, of blocks of up to 32 KiB and some more: by every entry point that gives them, in many
 * threads, whose classes share slabs, freed by others, and in heaps.
 *
 * Owns:    nothing.
 * ctest: secure
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

enum { THREADS = 5, ROUNDS = 6, HELD = 400 };
static pthread_barrier_t barrier;
static hak_heap_t *heap;
static struct held {
    unsigned char *block;
    size_t bytes;
} held[THREADS][HELD];

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 33;
}

static void *taken(unsigned how, size_t align, size_t bytes)
{
    void *block = NULL;
    switch (how) {
    case 0:
        return aligned_alloc(align, bytes);
    case 1:
        return memalign(align, bytes);
    case 2:
        return hak_heap_aligned_alloc(heap, align, bytes);
    default:
        EXPECT(posix_memalign(&block, align, bytes) == 0);
        return block;
    }
}

static void fill(struct held *one, uint64_t *state)
{
    size_t align = (size_t)32 << next(state) % 11; /* to 32 KiB */
    size_t most = next(state) % 8 ? 33000 : 70000, bytes = 1 + (size_t)(next(state) % most);
    if (next(state) % 3 == 0) bytes = (size_t)64 << next(state) % 10; /* powers of two */
    bool is_plain = next(state) % 3 == 0; /* between them, of the same sizes */
    unsigned char *block = is_plain ? malloc(bytes) : taken((unsigned)(next(state) % 4), align, bytes);
    REQUIRE(block != NULL);
    if (!is_plain) EXPECT_SAY((uintptr_t)block % align == 0, "%zu aligned to %zu lies at %p", bytes, align, (void *)block);
    one->bytes = malloc_usable_size(block);
    EXPECT_SAY(one->bytes >= bytes, "%zu usable of %zu", one->bytes, bytes);
    one->block = block;
    stamp_fill(block, one->bytes, (uintptr_t)block);
}

static void *run(void *argument)
{
    uintptr_t me = (uintptr_t)argument;
    uint64_t state = me + 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct held *mine = held[me], *theirs = held[(me + (unsigned)round) % THREADS];
        for (int i = 0; i < HELD; i++)
            if (!mine[i].block) fill(&mine[i], &state);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < HELD; i++) { /* round 0: the own */
            if ((i + round) % 4 == 0) continue;
            EXPECT(stamp_check(theirs[i].block, theirs[i].bytes, theirs[i].bytes, (uintptr_t)theirs[i].block) == SIZE_MAX);
            free(theirs[i].block);
            theirs[i].block = NULL;
        }
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < HELD; i++)
        free(held[me][i].block);
    return NULL;
}

static void aligned_blocks_are_aligned_whoever_asks_and_how(void)
{
    pthread_t thread[THREADS];
    heap = hak_heap_new(0);
    REQUIRE(heap && pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    hak_heap_destroy(heap);
}

/* A thread's first call, and one after its heap has ended. */
static pthread_key_t key;
static void at_the_end(void *left)
{
    uintptr_t rounds = (uintptr_t)left;
    void *block = aligned_alloc(8192, 8192);
    EXPECT(block && (uintptr_t)block % 8192 == 0);
    if (block) memset(block, 1, malloc_usable_size(block));
    free(block);
    if (rounds > 1) pthread_setspecific(key, (void *)(rounds - 1)); /* the library's own destructor runs in between */
}
static void *first_call(void *unused)
{
    (void)unused;
    void *block = aligned_alloc(4096, 16384);
    EXPECT(block && (uintptr_t)block % 4096 == 0);
    REQUIRE(pthread_setspecific(key, (void *)3) == 0);
    return block;
}

static void also_a_threads_first_and_those_after_its_last(void)
{
    pthread_t thread;
    void *block;
    REQUIRE(pthread_key_create(&key, at_the_end) == 0);
    for (int i = 0; i < 20; i++) {
        REQUIRE(pthread_create(&thread, NULL, first_call, NULL) == 0);
        pthread_join(thread, &block);
        free(block);
    }
}

int main(void)
{
    RUN(aligned_blocks_are_aligned_whoever_asks_and_how);
    RUN(also_a_threads_first_and_those_after_its_last);
    return EXPECT_RESULT();
}
