/* stepped.c - a handler comes in the middle of a free that keeps a large span, after each of its instructions, and leaves it by longjmp
 * or frees another block. Every block that is had afterwards is whole, and nothing is said to be free that is not.
 *
 * One instruction at a time by the processor's trap flag; each time in a child, whose list of kept spans is as the one's before. Where
 * longjmps.c meets any instruction now and then, this meets each one of these few with a list of which the last span is moved.
 *
 * Owns:      SIGTRAP.
 *
 * ctest: native
 */
#include "stress.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* whose own handlers cannot be left */

#include <malloc.h>
#include <setjmp.h>

enum { SMALL = 100000, MIDDLE = 200000, LARGE = 300000, STEPS_MAX = 2000, DONE = 77 };

static sigjmp_buf escape;
static volatile long steps, wanted;
static void *volatile freed_by_handler;

static void leave(int signal_number)
{
    (void)signal_number;
    if (++steps == wanted)
        siglongjmp(escape, 1);
}
static void free_another(int signal_number)
{
    (void)signal_number;
    if (++steps == wanted)
        free(freed_by_handler);
}

#define STEPPED(flag) __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" flag ", (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc")

static void free_stepped(void *block, void (*handler)(int), int flags, long step)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGTRAP, &action, NULL);
    wanted = step;
    STEPPED("orq $0x100");
    free(block);
    STEPPED("andq $~0x100");
}

static void kept_before(void)
{
    static const size_t sizes[] = {SMALL, MIDDLE, LARGE};
    for (int round = 0; round < 8; round++)
        for (size_t k = 0; k < 3; k++) {
            void *volatile block[3];
            for (int i = 0; i < 3; i++)
                block[i] = malloc(sizes[k]);
            for (int i = 0; i < 3; i++)
                free(block[i]);
        }
}

/* Two of one size: the first stands apart, and makes room for the second. */
static int left(long step, bool is_trimmed)
{
    kept_before();
    unsigned char *block[4], *first = malloc(MIDDLE), *second = malloc(MIDDLE), *other = malloc(MIDDLE);
    free(first);
    if (sigsetjmp(escape, 1) == 0) {
        free_stepped(second, leave, SA_NODEFER, step);
        return DONE;
    }
    if (is_trimmed)
        malloc_trim(0);
    for (int i = 0; i < 4; i++) {
        block[i] = memset(malloc(MIDDLE), i + 1, MIDDLE);
        if (block[i] == other)
            return 1;
    }
    for (int i = 0; i < 4; i++)
        if (block[i][0] != i + 1 || block[i][MIDDLE - 1] != i + 1)
            return 1;
    for (int i = 0; i < 4; i++)
        free(block[i]);
    return 0;
}

/* One of another size stands apart, and a third size is freed meanwhile. */
static int met(long step, bool is_trimmed)
{
    (void)is_trimmed;
    kept_before();
    unsigned char *block[6], *apart = malloc(LARGE), *freed = malloc(MIDDLE), *wall;
    freed_by_handler = malloc(SMALL);
    wall = memset(malloc(SMALL), 9, SMALL);
    free(apart);
    free_stepped(freed, free_another, 0, step);
    if (steps < wanted)
        return DONE;
    for (int i = 0; i < 6; i++) {
        size_t bytes = i % 2 ? LARGE : SMALL;
        block[i] = memset(malloc(bytes), i + 1, bytes);
    }
    for (int i = 0; i < 6; i++)
        for (size_t at = 0; at < (i % 2 ? LARGE : SMALL); at += 512)
            if (block[i][at] != i + 1)
                return 1;
    for (size_t at = 0; at < SMALL; at += 512)
        if (wall[at] != 9)
            return 1;
    return 0;
}

static void each_step(int (*run)(long step, bool is_trimmed), bool is_trimmed)
{
    for (long step = 1; step < STEPS_MAX; step++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0)
            _exit(run(step, is_trimmed));
        int status = child_wait(child, 60);
        if (WIFEXITED(status) && WEXITSTATUS(status) == DONE) {
            EXPECT_SAY(step > 30, "%ld steps only", step);
            return;
        }
        EXPECT_SAY(status == 0, "step %ld: status %#x", step, (unsigned)status);
    }
    EXPECT(false);
}

static void a_free_that_is_left_has_its_span_nowhere_twice(void)
{
    each_step(left, false);
    each_step(left, true);
}

static void a_free_that_a_handler_frees_in_gives_no_span_another_s_size(void)
{
    each_step(met, false);
}

int main(void)
{
    if (getenv("HAK_TEST_EMULATED") != NULL)
        return EXPECT_SKIPPED;
    RUN(a_free_that_is_left_has_its_span_nowhere_twice);
    RUN(a_free_that_a_handler_frees_in_gives_no_span_another_s_size);
    return EXPECT_RESULT();
}

#else

int main(void)
{
    return EXPECT_SKIPPED;
}

#endif
