/* free_max.c - the bound on free memory that the user set stands, though a call site of large blocks comes back for its block again and again.
 *
 * ctest: native
 */
#include "expect.h"

static void *volatile last;

int main(void)
{
    enum { BYTES = 100 << 20 };
    if (getenv("HAKMEM_FREE_MAX_MB") == NULL) {
        setenv("HAKMEM_FREE_MAX_MB", "1", 1);
        execl("/proc/self/exe", "free_max", (char *)NULL);
        return 126;
    }
    for (int round = 0; round < 20; round++) {
        char *block = (char *)malloc(BYTES);
        REQUIRE(block != NULL);
        memset(block, 1, BYTES);
        last = block;
        free(block);
    }
    EXPECT_SAY(!resident_is_known() || resident_kib() < 40000, "%ld KiB resident", resident_kib());
    return EXPECT_RESULT();
}
