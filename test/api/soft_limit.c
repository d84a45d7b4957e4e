/* soft_limit.c - HAKMEM_LIMIT_SOFT_MB: the more the program holds, the less free memory stays, also if it frees nothing meanwhile.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>

#define MIB ((size_t)1 << 20)
enum { COUNT = 10 };

static struct hak_stats stats_now(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats;
}

static void set(const char *name, const char *value) { REQUIRE(hak_option_set(name, value) == 0); }

static void what_is_free_goes_as_the_program_grows(void)
{
    char *hole[2], *wall[2], *more[COUNT];
    for (int i = 0; i < 2; i++) { /* so large that the thread keeps none for itself */
        hole[i] = (char *)malloc(2 * MIB + MIB / 2);
        wall[i] = (char *)malloc(10 * MIB);
        REQUIRE(hole[i] != NULL && wall[i] != NULL);
        memset(hole[i], 1, 2 * MIB + MIB / 2);
    }
    set("purge_delay_ms", "600000"); /* or it goes for being old */
    for (int i = 0; i < 2; i++)
        free(hole[i]);
    EXPECT(stats_now().free_bytes >= 5 * MIB);
    set("limit_soft_mb", "82");
    EXPECT(stats_now().free_bytes >= 5 * MIB);
    for (int i = 0; i < COUNT; i++) { /* no hole has room for one */
        struct timespec nap = {0, 30000000};
        more[i] = (char *)malloc(6 * MIB);
        REQUIRE(more[i] != NULL);
        nanosleep(&nap, NULL);
    }
    free(malloc(100)); /* a visit may be due */
    struct hak_stats stats = stats_now();
    EXPECT_SAY(stats.taken_bytes >= 80 * MIB && stats.taken_bytes <= 82 * MIB, "%llu taken", (unsigned long long)stats.taken_bytes);
    EXPECT_SAY(stats.free_bytes <= 4 * MIB, "%llu free", (unsigned long long)stats.free_bytes);
    for (int i = 0; i < COUNT; i++)
        free(more[i]);
    stats = stats_now();
    EXPECT_SAY(stats.free_bytes + stats.taken_bytes <= 82 * MIB, "%llu free, %llu taken", (unsigned long long)stats.free_bytes,
               (unsigned long long)stats.taken_bytes);
    for (int i = 0; i < 2; i++)
        free(wall[i]);
}

static void beyond_the_limit_nothing_stays(void)
{
    set("limit_soft_mb", "20");
    char *held = (char *)malloc(30 * MIB), *block = (char *)malloc(8 * MIB);
    REQUIRE(held != NULL && block != NULL);
    memset(block, 1, 8 * MIB);
    free(block);
    EXPECT_SAY(stats_now().free_bytes <= MIB / 4, "%llu free", (unsigned long long)stats_now().free_bytes);
    set("limit_soft_mb", "0");
    block = (char *)malloc(4 * MIB);
    REQUIRE(block != NULL);
    memset(block, 1, 4 * MIB);
    free(block);
    EXPECT_SAY(stats_now().free_bytes >= 4 * MIB, "%llu free", (unsigned long long)stats_now().free_bytes);
    free(held);
}

int main(void)
{
    RUN(what_is_free_goes_as_the_program_grows);
    RUN(beyond_the_limit_nothing_stays);
    return EXPECT_RESULT();
}
