/* abort_left.c - a handler of SIGABRT leaves by siglongjmp, as test frameworks' do: what comes after is reported, and the block that was freed is closed. */
#include "guard.h"

#include <fcntl.h>
#include <setjmp.h>

static sigjmp_buf away;
static void leaves(int signal)
{
    (void)signal;
    siglongjmp(away, 1);
}

int main(void)
{
    int said = dup(2), nowhere = open("/dev/null", O_WRONLY);
    signal(SIGABRT, leaves);
    char *block = NULL;
    for (volatile int i = 0; i < 1000; i++) { /* more than there are places for */
        block = guarded(16, 100, RIGHT);
        touch_write(block + 100);
        dup2(nowhere, 2);
        if (sigsetjmp(away, 1) == 0) {
            block_drop(block);
            return 95;
        }
        dup2(said, 2);
    }
    announce_after_free("read of", block, block, 100);
    announce("ends", "SEGV");
    announce("stack freed", "block_drop main");
    announce("stack read", "touch_read main");
    touch_read(block);
    return 0;
}
