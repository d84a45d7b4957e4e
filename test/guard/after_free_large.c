/* after_free_large.c - a freed block of a megabyte is read. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 1 << 20, ANY);
    block_drop(block);
    announce_after_free("read of", block + 777777, block, 1 << 20);
    announce("ends", "SEGV");
    announce("stack read", "touch_read main");
    announce("stack freed", "block_drop main");
    touch_read(block + 777777);
    return 0;
}
