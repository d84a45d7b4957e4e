/* drift.c - a program whose sizes drift holds little more than the pages that its blocks lie on.
 *
 * 32 MB are live all the time, while random blocks are replaced and sizes go from 64 to 1,100 bytes. A few blocks of earlier sizes pin
 * pages; the pages without one go back, though some of them are touched again a moment later: once all of them stayed.
 *
 * ctest: native
 */
#include "expect.h"

enum { LIVE_BYTES = 32000000, PHASES = 8, BLOCKS_MAX = LIVE_BYTES / 56 + 4096 };
static struct held { unsigned char *block; uint32_t bytes; } held[BLOCKS_MAX];

static void sizes_drift(void)
{
    memset(held, 1, sizeof held); /* resident before it counts */
    struct random_state random = { 12345 };
    size_t count = 0, live_bytes = 0;
    long before = resident_kib(), most = 0;
    for (unsigned phase = 0, middle = 64; phase < PHASES; phase++, middle += middle / 2) {
        for (size_t given = 0; given < 2 * (size_t)LIVE_BYTES;) {
            uint32_t bytes = middle - middle / 8 + (uint32_t)random_below(&random, middle / 4 + 1);
            while (live_bytes + bytes > LIVE_BYTES) {
                struct held *old = &held[random_below(&random, count)];
                EXPECT(old->block[0] == (unsigned char)old->bytes && old->block[old->bytes - 1] == (unsigned char)old->bytes);
                live_bytes -= old->bytes;
                free(old->block);
                *old = held[--count];
            }
            REQUIRE(count < BLOCKS_MAX);
            unsigned char *block = (unsigned char *)malloc(bytes);
            REQUIRE(block != NULL);
            held[count++] = (struct held){ memset(block, (int)(unsigned char)bytes, bytes), bytes };
            live_bytes += bytes;
            given += bytes;
        }
        if (resident_kib() - before > most)
            most = resident_kib() - before;
    }
    long after = resident_kib() - before;
    EXPECT_SAY(!resident_is_known() || most < 120000, "%ld KiB at the most", most);
    EXPECT_SAY(!resident_is_known() || after < 90000, "%ld KiB at the end", after);
    while (count > 0)
        free(held[--count].block);
}

int main(void)
{
    RUN(sizes_drift);
    return EXPECT_RESULT();
}
