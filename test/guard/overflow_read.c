/* overflow_read.c - a block of 4,096 bytes is read just behind its end. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 4096, ANY);
    announce_overflow("read of", block + 4096, block, 4096);
    announce("ends", "SEGV");
    announce("stack read", "touch_read main");
    announce("stack allocated", "block_make guarded main");
    touch_read(block + 4096);
    return 0;
}
