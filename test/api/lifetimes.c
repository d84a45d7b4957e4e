/* lifetimes.c - long-lived blocks of their own call site have slabs of their own: a peak leaves whole slabs behind.
 *
 * Three peaks of 96 MB, 1 block in 100 kept; then everything free is given back. What is resident is compared with the
 * same run without lifetimes, and with one in which both kinds of blocks come from one call, which nobody can tell apart.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <sys/wait.h>

#ifdef __clang__
#define NOIPA __attribute__((noinline)) /* clang does not merge functions */
#else
#define NOIPA __attribute__((noipa))
#endif

enum { PEAK_BYTES = 96 << 20, BYTES_MAX = 512, KEPT_MAX = 40000, BRIEF_MAX = 500000 };
#define SITE(name)                                                       \
    NOIPA static char *name(size_t bytes)               \
    {                                                                    \
        char *block = (char *)malloc(bytes);                             \
        EXPECT(block != NULL);                                           \
        memset(block, (int)(unsigned char)bytes, bytes);                 \
        return block;                                                    \
    }
SITE(site_long)
SITE(site_brief)
/* a wrapper in front of one malloc, and C++'s way */
NOIPA static char *wrapped(size_t bytes, bool is_long)
{
    if (is_long) {
        volatile char frame[96];
        frame[0] = 1;
        char *block = site_brief(bytes);
        return frame[0] ? block : NULL;
    }
    char *block = site_brief(bytes);
    __asm__ volatile("" : "+r"(block));
    return block;
}
NOIPA static char *wrapper_long(size_t bytes)
{
    volatile char frame[64];
    frame[0] = 1;
    char *block = wrapped(bytes, true);
    return frame[0] ? block : NULL;
}

static unsigned long dice = 88172645463325252u;
static unsigned long next(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

static unsigned long resident_kb(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats.resident_bytes >> 10;
}

static char *kept[KEPT_MAX];
static size_t kept_bytes[KEPT_MAX];
static char *brief[BRIEF_MAX];

/* Prints what the peaks left behind: resident KiB above the start, less what is live. */
static int run(const char *sites)
{
    memset(kept, 1, sizeof kept);
    memset(kept_bytes, 1, sizeof kept_bytes);
    memset(brief, 1, sizeof brief);
    unsigned long start_kb = resident_kb(), kept_count = 0, live = 0;
    for (int peak = 0; peak < 3; peak++) {
        unsigned long brief_count = 0;
        for (long left = PEAK_BYTES; left > 0;) {
            size_t bytes = 16 + next() % (BYTES_MAX - 15);
            bool is_long = next() % 100 == 0;
            char *block = !strcmp(sites, "one")    ? site_brief(bytes)
                          : !strcmp(sites, "two")  ? (is_long ? site_long(bytes) : site_brief(bytes))
                                                   : (is_long ? wrapper_long(bytes) : wrapped(bytes, false));
            left -= (long)bytes;
            if (is_long) {
                EXPECT(kept_count < KEPT_MAX);
                kept_bytes[kept_count] = bytes;
                kept[kept_count++] = block;
                live += bytes;
            } else {
                EXPECT(brief_count < BRIEF_MAX);
                brief[brief_count++] = block;
            }
        }
        while (brief_count > 0) free(brief[--brief_count]);
    }
    hak_collect();
    unsigned long end_kb = resident_kb();
    for (unsigned long i = 0; i < kept_count; i++)
        for (size_t k = 0; k < kept_bytes[i]; k++) EXPECT(kept[i][k] == (char)(unsigned char)kept_bytes[i]);
    printf("%lu %lu\n", end_kb - start_kb, live >> 10);
    return 0;
}

static unsigned long left_kb(const char *sites, const char *off)
{
    int ends[2];
    EXPECT(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        setenv("HAKMEM_DISABLE_LIFETIMES", off, 1);
        execl("/proc/self/exe", "lifetimes", sites, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char line[64] = "";
    ssize_t got = read(ends[0], line, sizeof line - 1);
    close(ends[0]);
    int status;
    EXPECT(got > 0 && waitpid(child, &status, 0) == child && status == 0);
    char *rest;
    unsigned long resident = strtoul(line, &rest, 10), live = strtoul(rest, NULL, 10);
    printf("sites %s, lifetimes %s: %lu KiB resident, %lu live\n", sites, *off == '1' ? "off" : "on", resident, live);
    return resident - live;
}

int main(int count, char **words)
{
    if (count == 2) return run(words[1]);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return EXPECT_SKIPPED; /* resident memory is mostly the sanitizer's */
#endif
    unsigned long without = left_kb("two", "1"), one = left_kb("one", "0");
    EXPECT(without > 16 << 10); /* or the test sees nothing */
    EXPECT(left_kb("two", "0") * 3 < without);
    EXPECT(left_kb("wrapper", "0") * 3 < without);
    EXPECT(one < without + without / 10 && without < one + one / 10); /* what cannot be known costs nothing */
    return EXPECT_RESULT();
}
