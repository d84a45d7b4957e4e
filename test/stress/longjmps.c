/* longjmps.c - a handler leaves malloc, free and realloc by longjmp, at each of the library's instructions.
 *
 * One instruction at a time is a breakpoint, from objdump's list in random order; calls of many kinds run until one meets it. What that
 * call was at may be lost. Every other block stays as it is, none is handed out twice, and none is said to be free that is not.
 *
 * Owns:      SIGTRAP.
 *
 * ctest: native timeout=600 secure
 */
#include "stress.h"

#if defined(__x86_64__) && defined(__GLIBC__)

#include "breakpoints.h"

#include <setjmp.h>

static sigjmp_buf escape;

static void leave(int signal_number)
{
    (void)signal_number;
    instruction_disarm();
    siglongjmp(escape, 1);
}

/* True: it was left. */
static bool call_left(struct random_state *random)
{
    if (sigsetjmp(escape, 1) != 0)
        return true;
    call(random);
    return false;
}

static void calls_that_are_left_lose_no_more_than_their_block(void)
{
    struct random_state random = {random_seed("longjmps")};
    instructions_find();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = leave;
    sigaction(SIGTRAP, &action, NULL);
    unsigned long left = 0;
    double end = clock_seconds() + stress_seconds(8);
    for (unsigned tried = 0; clock_seconds() < end; tried++) {
        if (tried % 16 == 0)
            calls_vary(&random);
        size_t chosen = instruction_draw(&random);
        instruction_arm(chosen);
        bool is_left = false;
        for (unsigned n = 0; n < 300 && !is_left; n++)
            is_left = call_left(&random);
        instruction_disarm();
        left += is_left;
        if (is_left)
            instruction_was_met(chosen);
        for (unsigned n = 0; n < 100; n++)
            call(&random);
        if (random_below(&random, 16) == 0)
            free_all();
        if (random_below(&random, 64) == 0)
            malloc_trim(0);
    }
    free_all();
    printf("%lu calls were left at %zu instructions\n", left, met_count);
    EXPECT(met_count > 100);
}

int main(void)
{
    RUN(calls_that_are_left_lose_no_more_than_their_block);
    return EXPECT_RESULT();
}

#else

int main(void)
{
    return EXPECT_SKIPPED;
}

#endif
