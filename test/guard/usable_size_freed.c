/* usable_size_freed.c - the size of a freed block is asked for: no double free, and all three stacks. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce("expect", "hakmem: malloc_usable_size: %p is a block of 100 bytes that is free already", (void *)block);
    announce("ends", "ABRT");
    announce("stack passed to the library", "main");
    announce("stack freed", "block_drop main");
    announce("stack allocated", "block_make guarded");
    hidden((void *)malloc_usable_size(hidden(block)));
    return 0;
}
