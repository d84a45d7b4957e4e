/* foreign_pieces.c - mappings of the program in the window's way: no block overlaps them, and what is around them serves.
 *
 * Owns:   a child that execs itself under RLIMIT_AS, where data comes by pieces of 256 KiB.
 * Method: foreign pages at places of the window that are not mapped yet, blocks of all sizes by several threads, contents of both.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PLACES = 40, THREADS = 4, BLOCKS = 500, MIB = 1 << 20 };
static char *foreign[PLACES];
static size_t page;

static void foreign_check(void)
{
    for (int i = 0; i < PLACES; i++)
        if (foreign[i])
            EXPECT(pattern_check(foreign[i], 0, page, (uint64_t)i) == page);
}

static void *work(void *argument)
{
    static const size_t sizes[] = {16, 300, 3000, 20000, 70000, 250000, 300000, 1100000};
    uint64_t owner = (uintptr_t)argument;
    static __thread char *block[BLOCKS];
    static __thread size_t bytes[BLOCKS];
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < BLOCKS; i++) {
            bytes[i] = sizes[(i * 7 + (int)owner) % 8] >> (i % 3);
            block[i] = (char *)malloc(bytes[i]);
            if (!block[i])
                continue; /* the limit */
            for (int k = 0; k < PLACES; k++)
                EXPECT(!foreign[k] || block[i] + bytes[i] <= foreign[k] || foreign[k] + page <= block[i]);
            pattern_fill(block[i], 0, bytes[i], owner * BLOCKS + (uint64_t)i);
        }
        int had = 0;
        for (int i = 0; i < BLOCKS; i++) {
            if (!block[i])
                continue;
            had++;
            EXPECT(pattern_check(block[i], 0, bytes[i], owner * BLOCKS + (uint64_t)i) == bytes[i]);
            if (i % 5 == 0)
                block[i] = (char *)realloc(block[i], bytes[i] * 2);
            free(block[i]);
        }
        EXPECT_SAY(had > BLOCKS / 2, "%d", had);
    }
    return NULL;
}

static void no_block_overlaps_what_is_there(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)malloc(300000);
    REQUIRE(first != NULL);
    int there = 0;
    for (int i = 0; i < PLACES; i++) {
        /* from the next piece on: pieces of a chunk that is in use, and chunks that nobody has seen */
        char *place = first + ((size_t)(i + 2) * (i < 20 ? 300 << 10 : 1300 << 10));
        place = (char *)((uintptr_t)place & -page);
        char *got = (char *)mmap(place, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got != place)
            continue;
        foreign[i] = got;
        pattern_fill(got, 0, page, (uint64_t)i);
        there++;
    }
    EXPECT_SAY(there > PLACES / 2, "%d", there);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    foreign_check();
    malloc_trim(0);
    foreign_check();
    work((void *)9);
    foreign_check();
    free(first);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1) {
        struct rlimit limit = {(rlim_t)700 * MIB, RLIM_INFINITY};
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
        execl("/proc/self/exe", "foreign_pieces", "child", (char *)NULL);
        return 1;
    }
    RUN(no_block_overlaps_what_is_there);
    return EXPECT_RESULT();
}
