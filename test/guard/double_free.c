/* double_free.c - a block is freed twice. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce("expect", "hakmem: free: double free of %p: this block of 100 bytes is free already", (void *)block);
    announce("ends", "ABRT");
    announce("stack passed to the library", "block_drop main");
    announce("stack freed", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    block_drop(block);
    return 0;
}
