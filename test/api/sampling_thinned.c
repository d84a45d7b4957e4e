/* sampling_thinned.c - when more samples live than the table has rows, half of them say the same.
 *
 * Owns:   itself, started again with a sample for every 64 bytes: most blocks are samples, and some 400,000 of them live.
 *
 * ctest: timeout=120 native
 */
#include "recorded.h"

#include <math.h>
#include <pthread.h>

enum { SITES = 3, THREADS = 2, BYTES_EACH = 24 << 20 };
static const size_t site_bytes[SITES] = { 48, 400, 3000 };
static char **blocks[THREADS][SITES];
static size_t counts[SITES];

struct live {
    double bytes[SITES], all;
    uint64_t rows;
};

/* What the table says, by size: one site has one size, and no other block has it. */
static struct live live_now(void)
{
    struct live sum = { { 0 }, 0, 0 };
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) {
        const struct hak_live_row *row = recorded_live(i);
        double weight;
        if (row->state != 1)
            continue;
        memcpy(&weight, &row->weight, sizeof weight);
        sum.rows++;
        sum.all += weight * (double)row->requested_bytes;
        for (int s = 0; s < SITES; s++)
            if (row->requested_bytes == site_bytes[s])
                sum.bytes[s] += weight * (double)row->requested_bytes;
    }
    return sum;
}

static void *allocate(void *argument)
{
    char ***own = (char ***)argument;
    for (size_t i = 0; i < counts[0]; i++)
        for (int s = 0; s < SITES; s++)
            if (i < counts[s]) {
                own[s][i] = (char *)malloc(site_bytes[s]);
                free(malloc(100)); /* rows come and go meanwhile */
            }
    return NULL;
}

static void *free_half(void *argument)
{
    char ***own = (char ***)argument;
    for (int s = 0; s < SITES; s++)
        for (size_t i = 0; i < counts[s]; i += 2)
            free(own[s][i]);
    return NULL;
}

static void run(void *(*function)(void *))
{
    pthread_t thread[THREADS];
    for (int t = 0; t < THREADS; t++)
        REQUIRE(pthread_create(&thread[t], NULL, function, blocks[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
}

static void near_is(const char *what, double estimate, double exact, double share)
{
    EXPECT_SAY(fabs(estimate / exact - 1) < share, "%s: %.0f, exact %.0f", what, estimate, exact);
}

static double sums_live(void)
{
    double sum = 0;
    for (uint64_t i = 0; i < hakmem_published.stacks.used; i++) {
        const struct hak_stack_row *row = (const void *)(uintptr_t)(hakmem_published.stacks.address + i * hakmem_published.stacks.row_bytes);
        sum += (double)row->alloc_bytes - (double)row->free_bytes;
    }
    return sum;
}

static void half_the_rows_say_the_same(void)
{
    run(allocate);
    struct live now = live_now();
    EXPECT_SAY(hakmem_published.thinned >= 2, "%llu", (unsigned long long)hakmem_published.thinned);
    EXPECT_SAY(hakmem_published.lost_live == 0, "%llu", (unsigned long long)hakmem_published.lost_live);
    EXPECT_SAY(now.rows > 10000 && now.rows < hakmem_published.live.capacity, "%llu rows", (unsigned long long)now.rows);
    for (int s = 0; s < SITES; s++)
        near_is("a site", now.bytes[s], THREADS * (double)(counts[s] * site_bytes[s]), 0.05);
    run(free_half);
    now = live_now();
    for (int s = 0; s < SITES; s++)
        near_is("half a site", now.bytes[s], THREADS * (double)(counts[s] / 2 * site_bytes[s]), 0.06);
    near_is("the stacks' sums", sums_live(), now.all, 0.06);
    for (int t = 0; t < THREADS; t++)
        for (int s = 0; s < SITES; s++)
            for (size_t i = 1; i < counts[s]; i += 2)
                free(blocks[t][s][i]);
    now = live_now();
    for (int s = 0; s < SITES; s++)
        EXPECT_SAY(now.bytes[s] == 0, "%.0f", now.bytes[s]);
}

int main(int count, char **words)
{
    (void)count;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    recorded_from_the_start(words);
    for (int s = 0; s < SITES; s++) {
        counts[s] = BYTES_EACH / site_bytes[s] / (s == 0 ? 2 : 1) & ~(size_t)1;
        for (int t = 0; t < THREADS; t++)
            blocks[t][s] = (char **)calloc(counts[s], sizeof(char *));
    }
    RUN(half_the_rows_say_the_same);
    return expect_failure_count != 0;
}
