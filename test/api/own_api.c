/* own_api.c - hak_alloc_at_least, hak_expand, hak_good_size, hak_usable_size, hak_collect, and sites.
 *
 * Owns:   nothing.
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <pthread.h>

static void alloc_at_least_says_what_the_block_has(void)
{
    for (size_t size = 0; size < (size_t)32 << 20; size += size / 7 + 1) {
        struct hak_block got = hak_alloc_at_least(size);
        REQUIRE(got.ptr != NULL);
        EXPECT(((uintptr_t)got.ptr & 15) == 0);
        EXPECT_SAY(got.bytes >= size, "%zu of %zu", got.bytes, size);
        EXPECT(got.bytes == malloc_usable_size(got.ptr));
        stamp_fill(got.ptr, got.bytes, size);
        EXPECT(stamp_check(got.ptr, got.bytes, got.bytes, size) == SIZE_MAX);
        free(got.ptr);
    }
    volatile size_t beyond = (size_t)PTRDIFF_MAX + 1;
    errno = 0;
    struct hak_block none = hak_alloc_at_least(beyond);
    EXPECT(none.ptr == NULL && none.bytes == 0 && errno == ENOMEM);
}

/* All of it is the block's, and a block of the size itself takes as much memory. */
static void good_size_is_what_malloc_gives(void)
{
    for (size_t size = 0; size <= (size_t)16 << 20; size += size < 40000 ? 13 : size / 9) {
        size_t good = hak_good_size(size);
        EXPECT_SAY(good >= size, "good size %zu of %zu", good, size);
        EXPECT_SAY(hak_good_size(good) == good, "good size of %zu is %zu", good, hak_good_size(good));
        void *warm[64];
        int warm_count = size <= 40000 ? 64 : 0;
        for (int i = 0; i < warm_count; i++) /* a rare class is served by the next coarser one */
            warm[i] = malloc(size);
        void *block = malloc(size);
        /* above 4 KiB a class of which there is little is served by the next of four to a doubling; up to 4 KiB one that would open
         * a page takes a block of a coarser one now and then */
        size_t more = size > 32768 ? 0 : size > 4096 ? good / 8 : good / 2 > 128 ? good / 2 : 128, usable = malloc_usable_size(block);
        int larger = 0;
        for (int i = 0; i < warm_count; i++)
            larger += malloc_usable_size(warm[i]) > good;
        /* the first two, or 32 where another thread had the heap before, four before a page more, and one for each 32 KiB */
        EXPECT_SAY(size > 4096 || larger <= 32 + 4 + 1 + (int)(64 * good / 32768), "%d of 64 blocks of %zu are larger than %zu", larger, size, good);
        EXPECT_SAY(usable >= (size > 32768 ? size : good) && usable <= good + more, "malloc(%zu) has %zu, good size is %zu", size, usable, good);
        free(block);
        block = malloc(good);
        usable = malloc_usable_size(block);
        EXPECT_SAY(usable >= good && usable - good <= more, "malloc(%zu) has %zu", good, usable);
        free(block);
        for (int i = 0; i < warm_count; i++)
            free(warm[i]);
    }
}

static void expand_stays_in_place(void)
{
    int grown = 0;
    for (size_t size = 16; size < (size_t)64 << 20; size = size * 2 + 16) {
        char *block = (char *)malloc(size);
        size_t usable = malloc_usable_size(block);
        stamp_fill(block, usable, 5);
        EXPECT(hak_expand(block, 1) == usable);
        EXPECT(hak_expand(block, usable) == usable);
        size_t more = hak_expand(block, usable + 1);
        if (size <= 32768)
            EXPECT_SAY(more == 0, "a block of %zu grew to %zu", usable, more);
        EXPECT_SAY(more == 0 || more > usable, "%zu -> %zu", usable, more);
        EXPECT(malloc_usable_size(block) == (more != 0 ? more : usable));
        if (more != 0) {
            grown++;
            memset(block + usable, 0x77, more - usable);
        }
        EXPECT(stamp_check(block, usable, usable, 5) == SIZE_MAX);
        volatile size_t beyond = SIZE_MAX - 10;
        EXPECT(hak_expand(block, beyond) == 0);
        EXPECT(hak_expand(block, (size_t)PTRDIFF_MAX + 1) == 0);
        free(block);
    }
    EXPECT_SAY(grown > 0, "%d large blocks grew in place", grown);
}

static void expand_never_reaches_a_neighbour(void)
{
    enum { COUNT = 200 };
    static char *blocks[COUNT];
    static size_t bytes[COUNT];
    struct random_state random = {random_seed("own_api")};
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = 33000 + random_below(&random, 300000);
        blocks[i] = (char *)malloc(bytes[i]);
        bytes[i] = malloc_usable_size(blocks[i]);
        stamp_fill(blocks[i], bytes[i], (uint64_t)i);
    }
    for (int step = 0; step < 5000; step++) {
        int i = (int)random_below(&random, COUNT);
        EXPECT(stamp_check(blocks[i], bytes[i], bytes[i], (uint64_t)i) == SIZE_MAX);
        if (random_below(&random, 3) == 0) {
            free(blocks[i]);
            bytes[i] = 33000 + random_below(&random, 300000);
            blocks[i] = (char *)malloc(bytes[i]);
            bytes[i] = malloc_usable_size(blocks[i]);
        } else {
            size_t more = hak_expand(blocks[i], bytes[i] + random_below(&random, 200000));
            if (more != 0)
                bytes[i] = more;
        }
        stamp_fill(blocks[i], bytes[i], (uint64_t)i);
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT(stamp_check(blocks[i], bytes[i], bytes[i], (uint64_t)i) == SIZE_MAX);
        free(blocks[i]);
    }
}

static void collect_gives_free_memory_back(void)
{
    static const size_t sizes[] = {48, 1000, 20000, 100000, 5000000};
    hak_collect();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t count = 60000000 / sizes[s];
        long before = resident_kib();
        void **blocks = (void **)malloc(count * sizeof *blocks);
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(sizes[s]);
            memset(blocks[i], 1, sizes[s]);
        }
        EXPECT(!resident_is_known() || resident_kib() - before > 55000);
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
        free(blocks);
        hak_collect();
        long growth = resident_kib() - before;
        EXPECT_SAY(!resident_is_known() || growth < 3000, "blocks of %zu bytes: %ld KiB stayed", sizes[s], growth);
        EXPECT_SAY(hak_collect() <= 65536 * 4, "a second collect found much in blocks of %zu", sizes[s]);
    }
}

static void collect_gives_pages_back_between_live_blocks(void)
{
    enum { COUNT = 100000, SIZE = 512 };
    static char *blocks[COUNT];
    hak_collect();
    long before = resident_kib();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (char *)malloc(SIZE);
        memset(blocks[i], i, SIZE);
    }
    for (int i = 0; i < COUNT; i++)
        if (i % 100 != 0) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    hak_collect();
    long growth = resident_kib() - before;
    EXPECT_SAY(!resident_is_known() || growth < 12000, "%ld KiB for 1,000 blocks that hold one page each", growth);
    for (int i = 0; i < COUNT; i += 100) {
        EXPECT(blocks[i][0] == (char)i && memcmp(blocks[i], blocks[i] + 1, SIZE - 1) == 0);
        free(blocks[i]);
    }
}

/* --- sites ------------------------------------------------------------------------------------------ */

static const struct hak_site_stats *site_find(const struct hak_site_stats *rows, size_t count, hak_site_t site)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].site == site)
            return &rows[i];
    return NULL;
}

static struct hak_site_stats rows[5000];

static void sites_are_counted_exactly(void)
{
    hak_site_t here = HAK_SITE, there = HAK_SITE;
    EXPECT(here != there && here != 0);
    void *blocks[300];
    uint64_t bytes = 0, freed_bytes = 0;
    for (int i = 0; i < 300; i++) {
        blocks[i] = hak_alloc_at((size_t)i * 50 + 1, here);
        bytes += malloc_usable_size(blocks[i]);
    }
    for (int i = 0; i < 100; i++) {
        freed_bytes += malloc_usable_size(blocks[i]);
        hak_free_at(blocks[i], here);
    }
    free(hak_alloc_at(10, there)); /* freed without its site: its free is not counted */
    size_t count = hak_site_stats(rows, 5000);
    EXPECT(count >= 2 && count <= 5000);
    const struct hak_site_stats *row = site_find(rows, count, here);
    REQUIRE(row != NULL);
    EXPECT_SAY(row->alloc_count == 300 && row->free_count == 100, "%llu and %llu", (unsigned long long)row->alloc_count,
               (unsigned long long)row->free_count);
    EXPECT_SAY(row->alloc_bytes == bytes && row->free_bytes == freed_bytes, "%llu of %llu bytes, %llu of %llu freed",
               (unsigned long long)row->alloc_bytes, (unsigned long long)bytes, (unsigned long long)row->free_bytes,
               (unsigned long long)freed_bytes);
    row = site_find(rows, count, there);
    REQUIRE(row != NULL);
    EXPECT(row->alloc_count == 1);
    for (int i = 100; i < 300; i++)
        hak_free_at(blocks[i], here);
}

static hak_site_t shared_site;
static void *allocate_at_shared_site(void *unused)
{
    for (int i = 0; i < 20000; i++)
        hak_free_at(hak_alloc_at(100, shared_site), shared_site);
    return unused;
}
static void sites_are_counted_across_threads(void)
{
    shared_site = HAK_SITE;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_at_shared_site, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const struct hak_site_stats *row = site_find(rows, hak_site_stats(rows, 5000), shared_site);
    REQUIRE(row != NULL);
    EXPECT_SAY(row->alloc_count == 80000 && row->free_count == 80000, "%llu", (unsigned long long)row->alloc_count);
}

static void few_rows_are_filled_when_few_are_asked_for(void)
{
    memset(rows, 0xee, sizeof rows);
    size_t count = hak_site_stats(rows, 1);
    EXPECT(count >= 2);
    EXPECT(rows[1].site == (hak_site_t)0xeeeeeeeeeeeeeeeeu);
    EXPECT(hak_site_stats(NULL, 0) == count);
}

static void beyond_4096_sites_blocks_are_served_all_the_same(void)
{
    for (hak_site_t site = 1; site <= 10000; site++) {
        void *block = hak_alloc_at(64, site * 8);
        REQUIRE(block != NULL);
        hak_free_at(block, site * 8);
    }
    size_t count = hak_site_stats(rows, 5000);
    EXPECT_SAY(count <= 4097, "%zu sites", count);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].site == 0 || (rows[i].site % 8 == 0 && rows[i].site <= 80000))
            total += rows[i].alloc_count;
    EXPECT_SAY(total == 10000, "%llu of 10000 counted", (unsigned long long)total);
}

static void a_site_of_zero_and_null_are_harmless(void)
{
    void *block = hak_alloc_at(100, 0);
    EXPECT(block != NULL);
    hak_free_at(block, 0);
    hak_free_at(NULL, HAK_SITE);
    volatile size_t beyond = (size_t)PTRDIFF_MAX + 1;
    errno = 0;
    EXPECT(hak_alloc_at(beyond, HAK_SITE) == NULL && errno == ENOMEM);
}

extern void free_sized(void *block, size_t bytes);

enum { THREADS = 4, HELD = 200 };
static pthread_barrier_t all_began;

/* Sizes between 4 and 32 KiB: at first served by every second class, then, where there is much of one, by its own. */
static void *hold_much_of_some_sizes(void *tight)
{
    free(malloc(16));
    pthread_barrier_wait(&all_began); /* a heap each */
    for (size_t size = 4097; size <= 32768; size += size / 9) {
        unsigned char *block[HELD];
        size_t good = hak_good_size(size);
        for (size_t i = 0; i < HELD; i++) {
            size_t align = (size_t)16 << i % 9; /* to 4 KiB */
            block[i] = i % 2 ? malloc(size) : aligned_alloc(align, size);
            EXPECT(i % 2 || ((uintptr_t)block[i] & (align - 1)) == 0);
            size_t usable = malloc_usable_size(block[i]);
            EXPECT_SAY(usable >= size, "%zu has %zu", size, usable);
            stamp_fill(block[i], usable, size + i);
        }
        if (malloc_usable_size(block[1]) > good && malloc_usable_size(block[HELD - 1]) == good) ++*(int *)tight;
        for (size_t i = 0; i < HELD; i++) {
            size_t usable = malloc_usable_size(block[i]);
            EXPECT(stamp_check(block[i], usable, usable, size + i) == SIZE_MAX);
            if (i % 2 && i % 3) free_sized(block[i], size);
            else free(realloc(block[i], size - size / 3));
        }
    }
    return NULL;
}

static void sizes_above_4_kib_share_slabs_until_there_is_much_of_one(void)
{
    pthread_t thread[THREADS];
    int tight[THREADS] = { 0 }, seen = 0;
    REQUIRE(pthread_barrier_init(&all_began, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, hold_much_of_some_sizes, &tight[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        seen += tight[i] != 0;
    }
    EXPECT_SAY(seen > 0, "in %d threads", seen);
}

int main(void)
{
    RUN(sizes_above_4_kib_share_slabs_until_there_is_much_of_one);
    RUN(alloc_at_least_says_what_the_block_has);
    RUN(good_size_is_what_malloc_gives);
    RUN(expand_stays_in_place);
    RUN(expand_never_reaches_a_neighbour);
    RUN(collect_gives_free_memory_back);
    RUN(collect_gives_pages_back_between_live_blocks);
    RUN(sites_are_counted_exactly);
    RUN(sites_are_counted_across_threads);
    RUN(few_rows_are_filled_when_few_are_asked_for);
    RUN(beyond_4096_sites_blocks_are_served_all_the_same);
    RUN(a_site_of_zero_and_null_are_harmless);
    return EXPECT_RESULT();
}
