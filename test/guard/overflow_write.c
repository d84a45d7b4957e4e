/* overflow_write.c - a block of 112 bytes is written to just behind its end. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 112, RIGHT);
    announce_overflow("write to", block + 112, block, 112);
    announce("ends", "SEGV");
    announce("stack written", "touch_write main");
    announce("stack allocated", "block_make guarded main");
    touch_write(block + 112);
    return 0;
}
