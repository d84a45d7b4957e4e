/* overflow_large.c - a block of 100,000 bytes is written to just behind its end. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100000, RIGHT);
    announce_overflow("write to", block + 100000, block, 100000);
    announce("ends", "SEGV");
    announce("stack written", "touch_write main");
    announce("stack allocated", "block_make guarded main");
    touch_write(block + 100000);
    return 0;
}
