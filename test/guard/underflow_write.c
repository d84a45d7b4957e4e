/* underflow_write.c - a block is written to just before its start. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, LEFT);
    announce_underflow("write to", block - 1, block, 100);
    announce("ends", "SEGV");
    announce("stack written", "touch_write main");
    announce("stack allocated", "block_make guarded main");
    touch_write(block - 1);
    return 0;
}
