/* outside_window.c - blocks past the window lie where the window never comes, and can be freed when it has grown.
 *
 * Owns:   children that exec themselves with HAKMEM_REGION_GB=1; 4 to 6 GiB of blocks that are not touched pass the window by.
 *
 * ctest: native
 */
#include "expect.h"

enum { LARGE_MAX = 16, SMALL = 4000, MIB = 1 << 20 };

static void blocks_are_freed_after_the_window_grew(size_t large_bytes, int count)
{
    static char *large[LARGE_MAX], *small[SMALL];
    for (int i = 0; i < count; i++) {
        large[i] = (char *)malloc(large_bytes);
        REQUIRE(large[i] != NULL);
        large[i][0] = large[i][large_bytes - 1] = (char)(i + 1);
    }
    int had = 0;
    for (int i = 0; i < SMALL; i++) {
        small[i] = (char *)malloc(MIB);
        if (!small[i])
            continue;
        had++;
        for (int k = 0; k < count; k++)
            EXPECT(small[i] + MIB <= large[k] || large[k] + large_bytes <= small[i]);
        small[i][0] = 7;
    }
    EXPECT_SAY(had > SMALL / 10, "%d", had);
    for (int i = 0; i < count; i++) {
        EXPECT(large[i][0] == i + 1 && large[i][large_bytes - 1] == i + 1);
        EXPECT(malloc_usable_size(large[i]) >= large_bytes);
        free(large[i]);
    }
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        blocks_are_freed_after_the_window_grew((size_t)atoi(argv[1]) * MIB, atoi(argv[2]));
        return EXPECT_RESULT();
    }
    static const char *const shapes[][2] = {{"600", "8"}, {"300", "14"}, {"700", "8"}};
    REQUIRE(setenv("HAKMEM_REGION_GB", "1", 1) == 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "outside_window", shapes[i][0], shapes[i][1], (char *)NULL);
            _exit(126);
        }
        int status = -1;
        REQUIRE(waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s MiB %s times: status %x", shapes[i][0], shapes[i][1], status);
    }
    return EXPECT_RESULT();
}
