/* overflow_slack.c - a write of one byte lands in what alignment leaves behind the block; free finds it. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, RIGHT);
    touch_write(block + 100);
    announce_found("overflow", block + 100, block, 100);
    announce("ends", "ABRT");
    announce("stack passed to the library", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    block_drop(block);
    return 0;
}
