/* realloc_freed.c - a freed block is passed to realloc. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce("expect", "hakmem: realloc: double free of %p: this block of 100 bytes is free already", (void *)block);
    announce("ends", "ABRT");
    announce("stack freed", "block_drop main");
    return realloc(block, 200) == NULL;
    return 0;
}
