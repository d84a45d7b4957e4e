/* double_delete.c - operator delete of a block that is freed already. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce("expect", "hakmem: delete: double free of %p: this block of 100 bytes is free already", (void *)block);
    announce("ends", "ABRT");
    announce("stack freed", "block_drop main");
    delete_plain(block);
    return 0;
}
