/* sampling_time.c - samples of deep stacks take their time, and are fewer for it.
 *
 * Owns:   itself, started again with a recording at its defaults. It allocates some hundred MB a second: hundreds of samples a second,
 *         fewer than HAKMEM_SAMPLE_MOST allows; each from another deep stack, which has to be unwound.
 *
 * ctest: timeout=60 native
 */
#include "expect.h"

#include "../../src/watch/published.h"

extern struct hak_published hakmem_published __attribute__((weak));

enum { DEPTH = 56, MS = 1500, BATCH = 1500 };

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

#ifdef __clang__
#define DEEP __attribute__((noinline))
#else
#define DEEP __attribute__((noipa, optimize("omit-frame-pointer")))
#endif

/* Two calls a level: which ones lead here is the path's bits. */
DEEP static uint64_t descend(uint64_t path, unsigned depth)
{
    if (depth == 0) {
        char *block = (char *)malloc(1000);
        *(volatile char *)block = 1;
        free(block);
        return path;
    }
    if (path & 1)
        return descend(path >> 1, depth - 1) + 1;
    return descend(path >> 1, depth - 1) + 2;
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    if (!getenv("HAKMEM_RECORD")) {
        setenv("HAKMEM_RECORD", "/dev/null", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    uint64_t begin = now_ms(), path = 12345, rate_max = 0;
    while (now_ms() - begin < MS) {
        for (int i = 0; i < BATCH; i++) {
            path = path * 6364136223846793005u + 1442695040888963407u;
            descend(path, DEPTH);
        }
        struct timespec pause = { 0, 2000000 };
        nanosleep(&pause, NULL);
        if (hakmem_published.rate_bytes > rate_max)
            rate_max = hakmem_published.rate_bytes;
    }
    double each_us = (double)hakmem_published.held_ns / 1e3 / (double)(hakmem_published.held_count ? hakmem_published.held_count : 1);
    printf("%llu samples, %.1f us each; at most a sample for %llu bytes\n", (unsigned long long)hakmem_published.samples, each_us,
           (unsigned long long)rate_max);
    EXPECT(hakmem_published.samples > 20);
    EXPECT(rate_max > 512 << 10);
    return EXPECT_RESULT();
}
