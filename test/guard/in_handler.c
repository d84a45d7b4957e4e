/* in_handler.c - a guarded block is freed in a handler of a signal, and used after it. */
#include "guard.h"

static char *held;
static void drops(int signal)
{
    (void)signal;
    block_drop(held);
}

int main(void)
{
    held = guarded(16, 100, ANY);
    signal(SIGUSR1, drops);
    raise(SIGUSR1);
    announce_after_free("write to", held, held, 100);
    announce("ends", "SEGV");
#ifdef __GLIBC__
    announce("stack freed", "block_drop drops main");
#else /* musl has no unwind tables, for its way back from a handler neither */
    announce("stack freed", "block_drop drops");
#endif
    touch_write(held);
    return 0;
}
