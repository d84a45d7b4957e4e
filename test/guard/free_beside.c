/* free_beside.c - an address behind a block is freed. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 96, LEFT);
    announce("expect", "hakmem: free: %p does not belong to malloc", (void *)(block + 96));
    announce("ends", "ABRT");
    announce("stack allocated", "block_make guarded main");
    block_drop(block + 96);
    return 0;
}
