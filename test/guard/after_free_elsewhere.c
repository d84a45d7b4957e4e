/* after_free_elsewhere.c - a block that another thread freed is read by a third. */
#include "guard.h"

static void *reader(void *block)
{
    touch_read(block);
    return NULL;
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    in_thread(thread_free, block);
    announce_after_free("read of", block, block, 100);
    announce("ends", "SEGV");
    announce("stack read", "touch_read reader");
    announce("stack freed", "thread_free");
    announce("stack allocated", "block_make guarded main");
    in_thread(reader, block);
    return 0;
}
