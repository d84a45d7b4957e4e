/* statistics_kept.c - large spans that a thread keeps for its next blocks are not live, whatever names are left over. */
#include "expect.h"

#include "hakmem/hakmem.h"

#include <stdlib.h>

static unsigned long long large_bytes(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.large_bytes;
}

int main(void)
{
    enum { SIZES = 20, EACH = 4 };
    void *block[EACH];
    unsigned long long before = large_bytes();
    for (int round = 0; round < 50; round++) { /* the same granules under many names */
        for (size_t size = 1; size <= SIZES; size++) {
            for (int i = 0; i < EACH; i++) EXPECT((block[i] = malloc(size << 16)) != NULL);
            EXPECT(large_bytes() >= before + EACH * (size << 16) && large_bytes() < before + (64u << 20));
            for (int i = 0; i < EACH; i++) {
                free(block[(i + round) % EACH]);
                EXPECT(large_bytes() == before + (EACH - 1 - (unsigned)i) * (size << 16));
            }
        }
    }
    return EXPECT_RESULT();
}
