/* expect.h - what the tests over exported symbols share: checks, patterns, random numbers.
 *
 * Owns:      the failure count; nothing else has state across files.
 * Borrows:   libc and the library under test, by its exported symbols only.
 * Threads:   EXPECT may be used from any thread; a random state belongs to one.
 * Why:       the compiler knows malloc's family and removes calls whose outcome it can foretell; tests
 *            therefore call through volatile pointers (malloc(n) below is such a call).
 */
#ifndef HAK_TEST_EXPECT_H
#define HAK_TEST_EXPECT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <malloc.h>
#include <sched.h> /* musl's declares calloc and free */
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../temporary.h"

#define EXPECT_UNUSED __attribute__((unused))
#define EXPECT_SKIPPED 77

static int expect_failure_count EXPECT_UNUSED;

EXPECT_UNUSED __attribute__((format(printf, 3, 4)))
static void expect_failed(const char *file, int line, const char *format, ...)
{
    char text[512];
    int length = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2)
        length = (int)sizeof text - 2;
    text[length++] = '\n';
    /* One write per line, so that threads do not mix; a hundred lines tell as much as a million. */
    if (__atomic_add_fetch(&expect_failure_count, 1, __ATOMIC_RELAXED) <= 100) {
        ssize_t ignored EXPECT_UNUSED = write(2, text, (size_t)length);
    }
}

/* EXPECT(condition): the test goes on, and fails at its end. EXPECT_SAY adds values. REQUIRE ends it. */
#define EXPECT(x) ((x) ? (void)0 : expect_failed(__FILE__, __LINE__, "expected: %s", #x))
#define EXPECT_SAY(x, format, ...) \
    ((x) ? (void)0 : expect_failed(__FILE__, __LINE__, "expected: %s; " format, #x, __VA_ARGS__))
#define REQUIRE(x) ((x) ? (void)0 : (expect_failed(__FILE__, __LINE__, "required: %s", #x), _exit(1)))

/* Runs one sentence of a test and names it when it fails. */
#define RUN(sentence)                                                                                   \
    do {                                                                                                \
        int failures_before = expect_failure_count;                                                     \
        sentence();                                                                                     \
        if (expect_failure_count != failures_before)                                                    \
            fprintf(stderr, "FAILED %s (%d)\n", #sentence, expect_failure_count - failures_before);     \
    } while (0)

#define EXPECT_RESULT() (expect_failure_count != 0)

/* --- calls that the compiler cannot see through ---------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GLIBC__
extern void *pvalloc(size_t size) __THROW;
#else /* musl declares less of the family */
extern void *pvalloc(size_t size);
extern size_t hak_collect(void);
EXPECT_UNUSED static int malloc_trim(size_t pad) { return (void)pad, hak_collect() > 0; }
#endif
extern void free_sized(void *ptr, size_t size);
extern void free_aligned_sized(void *ptr, size_t alignment, size_t size);
#ifdef __cplusplus
}
#endif

EXPECT_UNUSED static void *(*volatile call_malloc)(size_t) = malloc;
EXPECT_UNUSED static void *(*volatile call_calloc)(size_t, size_t) = calloc;
EXPECT_UNUSED static void *(*volatile call_realloc)(void *, size_t) = realloc;
EXPECT_UNUSED static void *(*volatile call_reallocarray)(void *, size_t, size_t) = reallocarray;
EXPECT_UNUSED static void (*volatile call_free)(void *) = free;
EXPECT_UNUSED static int (*volatile call_posix_memalign)(void **, size_t, size_t) = posix_memalign;
EXPECT_UNUSED static void *(*volatile call_aligned_alloc)(size_t, size_t) = aligned_alloc;
EXPECT_UNUSED static void *(*volatile call_memalign)(size_t, size_t) = memalign;
EXPECT_UNUSED static void *(*volatile call_valloc)(size_t) = valloc;
EXPECT_UNUSED static void *(*volatile call_pvalloc)(size_t) = pvalloc;
EXPECT_UNUSED static size_t (*volatile call_usable)(void *) = malloc_usable_size;

#define malloc(n) call_malloc(n)
#define calloc(n, m) call_calloc(n, m)
#define realloc(p, n) call_realloc(p, n)
#define reallocarray(p, n, m) call_reallocarray(p, n, m)
#define free(p) call_free(p)
#define posix_memalign(p, a, n) call_posix_memalign(p, a, n)
#define aligned_alloc(a, n) call_aligned_alloc(a, n)
#define memalign(a, n) call_memalign(a, n)
#define valloc(n) call_valloc(n)
#define pvalloc(n) call_pvalloc(n)
#define malloc_usable_size(p) call_usable(p)

/* --- bytes that say whose they are ------------------------------------------------------------ */

/* Byte `i` of the pattern of `owner`; neighbours and neighbouring owners differ. */
static inline unsigned char pattern_byte(uint64_t owner, size_t i)
{
    uint64_t x = (owner + 1) * 0x9e3779b97f4a7c15u + i / 8 * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return (unsigned char)(x >> (8 * (i & 7)));
}

EXPECT_UNUSED static void pattern_fill(void *block, size_t from, size_t to, uint64_t owner)
{
    unsigned char *bytes = (unsigned char *)block;
    for (size_t i = from; i < to; i++)
        bytes[i] = pattern_byte(owner, i);
}

/* The offset of the first byte in [from, to) that is not the owner's, or `to`. */
EXPECT_UNUSED static size_t pattern_check(const void *block, size_t from, size_t to, uint64_t owner)
{
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = from; i < to; i++)
        if (bytes[i] != pattern_byte(owner, i))
            return i;
    return to;
}

/* Large blocks: the first and last 256 bytes and 16 bytes in every 4 KiB. `step` says what is checked next. */
enum { PATTERN_WHOLE_BYTES = 16384, PATTERN_STEP_BYTES = 4096 };

EXPECT_UNUSED static void stamp_fill(void *block, size_t bytes, uint64_t owner)
{
    if (bytes <= PATTERN_WHOLE_BYTES) {
        pattern_fill(block, 0, bytes, owner);
        return;
    }
    pattern_fill(block, 0, 256, owner);
    for (size_t at = PATTERN_STEP_BYTES; at + 16 <= bytes; at += PATTERN_STEP_BYTES)
        pattern_fill(block, at, at + 16, owner);
    pattern_fill(block, bytes - 256, bytes, owner);
}

/* The first offset below `checked_bytes` that a stamp of `bytes` bytes wrote and that has changed, or
 * SIZE_MAX when all is there. */
EXPECT_UNUSED static size_t stamp_check(const void *block, size_t bytes, size_t checked_bytes, uint64_t owner)
{
    size_t end = bytes < checked_bytes ? bytes : checked_bytes, at;
    if (bytes <= PATTERN_WHOLE_BYTES)
        return (at = pattern_check(block, 0, end, owner)) == end ? SIZE_MAX : at;
    size_t head = end < 256 ? end : 256;
    if ((at = pattern_check(block, 0, head, owner)) != head)
        return at;
    for (size_t step = PATTERN_STEP_BYTES; step + 16 <= end; step += PATTERN_STEP_BYTES)
        if ((at = pattern_check(block, step, step + 16, owner)) != step + 16)
            return at;
    if (end > bytes - 256 && (at = pattern_check(block, bytes - 256, end, owner)) != end)
        return at;
    return SIZE_MAX;
}

/* --- random numbers, time, children ------------------------------------------------------------ */

struct random_state {
    uint64_t word;
};

static inline uint64_t random_next(struct random_state *random)
{
    uint64_t z = (random->word += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline size_t random_below(struct random_state *random, size_t bound)
{
    return (size_t)(random_next(random) % bound);
}

/* HAK_TEST_SEED repeats a run; otherwise the clock chooses. Either way the seed is printed. */
EXPECT_UNUSED static uint64_t random_seed(const char *test)
{
    const char *text = getenv("HAK_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
    printf("%s: seed %llu (HAK_TEST_SEED repeats it)\n", test, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Under an emulator /proc shows the emulator's memory; tests of residence are left out there. */
EXPECT_UNUSED static bool resident_is_known(void)
{
    return getenv("HAK_TEST_EMULATED") == NULL;
}

EXPECT_UNUSED static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Waits for a child at most `seconds`; its wait status, or -1 after killing it. */
EXPECT_UNUSED static int child_wait(pid_t child, double seconds)
{
    double end = clock_seconds() + seconds;
    for (;;) {
        int status;
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            return status;
        if (done < 0)
            return -1;
        if (clock_seconds() > end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        struct timespec nap = {0, 200000};
        nanosleep(&nap, NULL);
    }
}

#endif
