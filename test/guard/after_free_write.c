/* after_free_write.c - a freed block is written to. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 30000, ANY);
    block_drop(block);
    announce_after_free("write to", block + 29999, block, 30000);
    announce("ends", "SEGV");
    announce("stack written", "touch_write main");
    announce("stack freed", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    touch_write(block + 29999);
    return 0;
}
