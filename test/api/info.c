/* info.c - what a program may ask of its heap: mallinfo, malloc_info, malloc_stats, mallopt, malloc_trim.
 *
 * Owns:   nothing.
 * Source: mallinfo(3), malloc_info(3), mallopt(3), malloc_trim(3); glibc's tst-mallinfo2, tst-malloc_info.
 */
#include "expect.h"

#include <pthread.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void mallinfo2_follows_what_is_held(void)
{
    enum { COUNT = 4000 };
    static void *blocks[COUNT];
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1000);
        memset(blocks[i], 1, 1000);
    }
    struct mallinfo2 during = mallinfo2();
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    struct mallinfo2 after = mallinfo2();
    size_t held = (size_t)COUNT * 1000;
    EXPECT_SAY(during.uordblks >= before.uordblks + held, "%zu -> %zu", before.uordblks, during.uordblks);
    EXPECT_SAY(during.uordblks <= before.uordblks + 2 * held, "%zu -> %zu", before.uordblks, during.uordblks);
    EXPECT_SAY(after.uordblks + held <= during.uordblks, "%zu -> %zu", during.uordblks, after.uordblks);
    EXPECT(during.arena + during.hblkhd >= during.uordblks);
}

static void mallinfo2_counts_a_large_block(void)
{
    struct mallinfo2 before = mallinfo2();
    char *block = (char *)malloc((size_t)100 << 20);
    block[0] = 1;
    struct mallinfo2 during = mallinfo2();
    free(block);
    struct mallinfo2 after = mallinfo2();
    size_t grown = during.uordblks + during.hblkhd - before.uordblks - before.hblkhd;
    EXPECT_SAY(grown >= (size_t)100 << 20, "%zu", grown);
    size_t left = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    EXPECT_SAY(left < (size_t)1 << 20, "%zu", left);
}

static void mallinfo_is_mallinfo2_in_ints(void)
{
    void *block = malloc(100000);
    struct mallinfo narrow = mallinfo();
    struct mallinfo2 wide = mallinfo2();
    EXPECT(narrow.uordblks > 0);
    EXPECT_SAY((size_t)narrow.uordblks <= wide.uordblks + 65536 && wide.uordblks <= (size_t)narrow.uordblks + 65536,
               "%d and %zu", narrow.uordblks, wide.uordblks);
    free(block);
}

static void malloc_info_writes_xml(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    REQUIRE(file != NULL);
    EXPECT(malloc_info(0, file) == 0);
    fclose(file);
    EXPECT_SAY(bytes > 20 && strncmp(text, "<malloc version=", 16) == 0, "%.60s", text);
    EXPECT(strstr(text, "</malloc>") != NULL);
    long open = 0;
    for (size_t i = 0; i < bytes; i++)
        open += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
    EXPECT(open == 0);
    EXPECT(strstr(text, "system") != NULL);
    free(text);
}

static void malloc_info_refuses_options(void)
{
    errno = 0;
    FILE *file = fopen("/dev/null", "w");
    int result = malloc_info(1, file);
    EXPECT_SAY(result == EINVAL || (result == -1 && errno == EINVAL), "%d, errno %d", result, errno);
    fclose(file);
}

static void malloc_stats_prints_on_standard_error(void)
{
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    int saved = dup(2);
    dup2(pipe_ends[1], 2);
    malloc_stats();
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(pipe_ends[1]);
    char text[65536];
    size_t bytes = 0;
    ssize_t part;
    while ((part = read(pipe_ends[0], text + bytes, sizeof text - 1 - bytes)) > 0)
        bytes += (size_t)part;
    text[bytes] = 0;
    close(pipe_ends[0]);
    EXPECT(bytes > 20);
    EXPECT_SAY(strpbrk(text, "0123456789") != NULL, "%.80s", text);
}

static void mallopt_says_yes_to_what_programs_set(void)
{
    EXPECT(mallopt(M_MMAP_THRESHOLD, 256 * 1024) == 1);
    EXPECT(mallopt(M_TRIM_THRESHOLD, 256 * 1024) == 1);
    EXPECT(mallopt(M_TOP_PAD, 0) == 1);
    EXPECT(mallopt(M_MMAP_MAX, 1000) == 1);
    EXPECT(mallopt(M_ARENA_MAX, 2) == 1);
    EXPECT(mallopt(M_ARENA_TEST, 2) == 1);
    EXPECT(mallopt(M_PERTURB, 0) == 1);
    EXPECT(mallopt(M_MXFAST, 64) == 1);
}

static void malloc_trim_gives_free_memory_back(void)
{
    enum { COUNT = 100000 };
    static void *blocks[COUNT];
    malloc_trim(0);
    long before = resident_kib();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(1000);
        memset(blocks[i], 1, 1000);
    }
    EXPECT(!resident_is_known() || resident_kib() - before > 90000);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    int given = malloc_trim(0);
    long after = resident_kib();
    EXPECT_SAY(!resident_is_known() || after - before < 4096, "%ld KiB before, %ld after", before, after);
    EXPECT(given == 0 || given == 1);
    EXPECT(malloc_trim(0) == 0 || malloc_trim((size_t)1 << 30) == 0);
}

static volatile bool asking;
static void *ask_for_ever(void *unused)
{
    while (asking) {
        struct mallinfo2 info = mallinfo2();
        EXPECT(info.uordblks < (size_t)1 << 40);
        malloc_trim(0);
        free(malloc(100));
    }
    return unused;
}
static void *churn(void *unused)
{
    void *blocks[128] = {0};
    for (int i = 0; i < 300000; i++) {
        free(blocks[i & 127]);
        blocks[i & 127] = malloc((size_t)(i * 37) % 3000);
    }
    for (int i = 0; i < 128; i++)
        free(blocks[i]);
    return unused;
}
static void asking_while_others_allocate_is_safe(void)
{
    pthread_t asker, churners[2];
    asking = true;
    REQUIRE(pthread_create(&asker, NULL, ask_for_ever, NULL) == 0);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&churners[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(churners[i], NULL);
    asking = false;
    pthread_join(asker, NULL);
}

static void *ask_with_little_stack(void *said)
{
    struct mallinfo2 info = mallinfo2();
    *(bool *)said = info.arena + info.hblkhd > 0;
    return NULL;
}
static void mallinfo2_does_with_the_least_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    bool said = false;
    free(malloc(100));
    REQUIRE(pthread_attr_init(&attributes) == 0);
    if (pthread_attr_setstacksize(&attributes, 16384) != 0) /* what x86-64 allows; others ask for more */
        REQUIRE(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    REQUIRE(pthread_create(&thread, &attributes, ask_with_little_stack, &said) == 0);
    pthread_join(thread, NULL);
    EXPECT(said);
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    RUN(mallinfo2_follows_what_is_held);
    RUN(mallinfo2_counts_a_large_block);
    RUN(mallinfo_is_mallinfo2_in_ints);
    RUN(malloc_info_writes_xml);
    RUN(malloc_info_refuses_options);
    RUN(malloc_stats_prints_on_standard_error);
    RUN(mallopt_says_yes_to_what_programs_set);
    RUN(malloc_trim_gives_free_memory_back);
    RUN(mallinfo2_does_with_the_least_stack);
    RUN(asking_while_others_allocate_is_safe);
    return EXPECT_RESULT();
}
