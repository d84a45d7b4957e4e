/* drop.c - a program that gives most of its memory back within a tenth of a second, and then does next to nothing, as a server whose keys were deleted:
 * what it freed goes back, though it hardly calls the library any more.
 *
 * ctest: native
 */
#include "expect.h"

enum { BLOCKS = 160000, BYTES = 256, PARTS = 80 };
static void *blocks[BLOCKS];

static void nap_ms(long ms)
{
    struct timespec nap = { 0, ms * 1000000 };
    nanosleep(&nap, NULL);
}

int main(void)
{
    if (!resident_is_known())
        return EXPECT_SKIPPED;
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BYTES), 1, BYTES);
    long full = resident_kib();
    for (int part = 0; part < PARTS; part++) {
        for (int i = part * (BLOCKS / PARTS); i < (part + 1) * (BLOCKS / PARTS); i++)
            free(blocks[i]);
        nap_ms(1);
    }
    for (int i = 0; i < 10; i++) { /* a little, from what is at hand */
        free(malloc(BYTES));
        nap_ms(100);
    }
    EXPECT_SAY(resident_kib() < full - 25000, "%ld of %ld KiB are resident", resident_kib(), full);
    return EXPECT_RESULT();
}
