/* delete_sized.c - operator delete is told a size that the block has not. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    announce("expect", "hakmem: delete: %p is a block of 100 bytes, but the caller says 101", (void *)block);
    announce("ends", "ABRT");
    announce("stack allocated", "block_make guarded main");
    delete_sized(block, 101);
    return 0;
}
