/* after_free_read.c - a freed block is read. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce_after_free("read of", block + 7, block, 100);
    announce("ends", "SEGV");
    announce("stack read", "touch_read main");
    announce("stack freed", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    touch_read(block + 7);
    return 0;
}
