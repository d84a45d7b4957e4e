/* jemallocx.c - jemalloc's calls for aligned blocks: a large one grows without a copy, is zero without being written, and shrinks also where
 * memory is short.
 *
 * Owns:   a child that execs itself under RLIMIT_AS.
 * Method: a copy and a block that is written show in page faults. What else these calls do, test/preload/jemalloc.py compares with jemalloc.
 *
 * ctest: native
 */
#include "expect.h"

#include <sys/resource.h>

/* a static library has none of them */
__attribute__((weak)) extern void *mallocx(size_t bytes, int flags);
__attribute__((weak)) extern void *rallocx(void *block, size_t bytes, int flags);
__attribute__((weak)) extern size_t sallocx(const void *block, int flags), nallocx(size_t bytes, int flags);
__attribute__((weak)) extern void dallocx(void *block, int flags);

enum { PAGE_LG = 12, ZERO = 0x40, LARGE = 64 << 20, FAULTS_MAX = 1000, LIMIT = 64 << 20 };

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void a_large_aligned_block_is_zero_without_being_written(void)
{
    long before = faults();
    char *block = (char *)mallocx(LARGE, PAGE_LG | ZERO);
    REQUIRE(block != NULL);
    EXPECT_SAY(faults() - before < FAULTS_MAX, "%ld page faults", faults() - before);
    for (size_t i = 0; i < LARGE; i += 4096)
        EXPECT(block[i] == 0);
    memset(block, 1, LARGE);
    free(block);
    block = (char *)mallocx(LARGE, PAGE_LG | ZERO); /* and where it was written before */
    REQUIRE(block != NULL);
    for (size_t i = 0; i < LARGE; i += 512)
        EXPECT(block[i] == 0);
    free(block);
}

static void a_large_aligned_block_grows_without_a_copy(void)
{
    char *block = (char *)mallocx(LARGE, PAGE_LG), *behind = (char *)malloc(1 << 20);
    REQUIRE(block != NULL && behind != NULL);
    memset(block, 7, LARGE);
    for (size_t bytes = LARGE + (1 << 20); bytes <= LARGE + (4 << 20); bytes += 1 << 20) {
        long before = faults();
        block = (char *)rallocx(block, bytes, PAGE_LG);
        REQUIRE(block != NULL && (uintptr_t)block % 4096 == 0 && malloc_usable_size(block) >= bytes);
        EXPECT_SAY(faults() - before < FAULTS_MAX, "%ld page faults for %zu bytes", faults() - before, bytes);
    }
    for (size_t i = 0; i < LARGE; i += 512)
        EXPECT(block[i] == 7);
    free(block);
    free(behind);
}

static int limited(void)
{
    static const size_t sizes[] = {1u << 20, 60000, 32768, 16384, 8192, 4096, 1024};
    char *large = (char *)mallocx(100000, PAGE_LG), *small = (char *)mallocx(30000, PAGE_LG);
    REQUIRE(large != NULL && small != NULL);
    memset(large, 3, 100000);
    memset(small, 4, 30000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        while (malloc(sizes[i]) != NULL)
            continue;
    errno = 77;
    large = (char *)rallocx(large, 5000, PAGE_LG);
    small = (char *)rallocx(small, 4000, PAGE_LG);
    REQUIRE(large != NULL && small != NULL);
    EXPECT(errno == 77 && large[4999] == 3 && small[3999] == 4);
    EXPECT(rallocx(small, 1 << 20, PAGE_LG) == NULL && errno == ENOMEM && small[3999] == 4);
    return expect_failure_count != 0;
}

/* HAKMEM_LIMIT_HARD_MB=64: there is room for what it grows by, once what the thread keeps is given back, and never for a copy. */
static int hard_limited(void)
{
    char *large = (char *)mallocx(58u << 20, PAGE_LG), *behind = (char *)malloc(100000), *kept = (char *)malloc(2u << 20), *kept_too = (char *)malloc(900000);
    REQUIRE(large != NULL && behind != NULL && kept != NULL && kept_too != NULL);
    large[57u << 20] = 5;
    free(kept);
    free(kept_too);
    large = (char *)rallocx(large, 62u << 20, PAGE_LG);
    EXPECT(large != NULL && large[57u << 20] == 5);
    EXPECT(rallocx(large, 80u << 20, PAGE_LG) == NULL && errno == ENOMEM && large[57u << 20] == 5);
    return expect_failure_count != 0;
}

/* Every block is guarded: it has what was asked for, and not a page. */
static int guarded(void)
{
    for (size_t bytes = 33000; bytes < 100000; bytes += 1111) {
        void *block = mallocx(bytes, 0);
        EXPECT_SAY(sallocx(block, 0) == bytes && nallocx(bytes, 0) == bytes, "%zu: %zu", bytes, sallocx(block, 0));
        dallocx(block, 0);
    }
    return expect_failure_count != 0;
}

static void executed_under(const char *what, size_t address_space)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        struct rlimit limit = {address_space, address_space};
        if (address_space != 0)
            setrlimit(RLIMIT_AS, &limit);
        else if (strcmp(what, "hard") == 0)
            setenv("HAKMEM_LIMIT_HARD_MB", "64", 1);
        else
            setenv("HAKMEM_GUARD", "1", 1), setenv("HAKMEM_SAMPLE_BYTES", "64", 1), setenv("HAKMEM_SAMPLE_MOST", "0", 1);
        execl("/proc/self/exe", "jemallocx", what, (char *)NULL);
        _exit(99);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
}

static void a_block_has_what_was_foretold(void)
{
    for (size_t bytes = 1; bytes < 300000; bytes += bytes / 9 + 1)
        for (int lg = 0; lg <= 22; lg += lg < 14 ? 1 : 4) {
            int flags = lg < 4 ? 0 : lg;
            void *block = mallocx(bytes, flags);
            /* of a size that is rare in its thread it may be more */
            EXPECT_SAY(sallocx(block, 0) >= nallocx(bytes, flags), "%zu, %d: %zu of %zu", bytes, lg, sallocx(block, 0), nallocx(bytes, flags));
            EXPECT(bytes <= 33000 || sallocx(block, 0) == nallocx(bytes, flags));
            EXPECT(flags == 0 || (uintptr_t)block % ((size_t)1 << lg) == 0);
            block = rallocx(block, bytes + bytes / 3, flags);
            EXPECT_SAY(sallocx(block, 0) >= nallocx(bytes + bytes / 3, flags), "%zu, %d", bytes, lg);
            EXPECT(flags == 0 || (uintptr_t)block % ((size_t)1 << lg) == 0);
            dallocx(block, 0);
            block = rallocx(mallocx(100, 0), bytes, flags);
            if (bytes > 1000) /* a smaller one stays where it is, if that is aligned by chance */
                EXPECT_SAY(sallocx(block, 0) >= nallocx(bytes, flags), "%zu, %d", bytes, lg);
            dallocx(block, 0);
        }
}

static void one_that_cannot_become_smaller_stays(void)
{
    executed_under("limited", LIMIT);
}

static void one_that_grows_under_a_hard_limit_needs_no_room_for_a_copy(void)
{
    executed_under("hard", 0);
}

static void a_guarded_one_has_what_was_asked_for(void)
{
    executed_under("guarded", 0);
}

int main(int argc, char **argv)
{
    if (mallocx == NULL || rallocx == NULL)
        return EXPECT_SKIPPED;
    if (argc > 1)
        _exit(strcmp(argv[1], "hard") == 0 ? hard_limited() : strcmp(argv[1], "guarded") == 0 ? guarded() : limited());
    RUN(a_large_aligned_block_is_zero_without_being_written);
    RUN(a_large_aligned_block_grows_without_a_copy);
    RUN(a_block_has_what_was_foretold);
    RUN(a_guarded_one_has_what_was_asked_for);
    RUN(one_that_cannot_become_smaller_stays);
    RUN(one_that_grows_under_a_hard_limit_needs_no_room_for_a_copy);
    return EXPECT_RESULT();
}
