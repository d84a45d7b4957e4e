/* free_interior.c - an address inside a block is freed. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    announce("expect", "hakmem: free: %p is inside a block of 100 bytes that starts at %p", (void *)(block + 16), (void *)block);
    announce("ends", "ABRT");
    announce("stack passed to the library", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    block_drop(block + 16);
    return 0;
}
