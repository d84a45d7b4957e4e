/* overflow_far.c - a write goes 4,000 bytes past the end of a block, into pages that belong to nobody. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 64, RIGHT);
    announce_overflow("write to", block + 4064, block, 64);
    announce("ends", "SEGV");
    announce("stack allocated", "block_make guarded main");
    touch_write(block + 4064);
    return 0;
}
