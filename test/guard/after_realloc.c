/* after_realloc.c - the old address is used after realloc, which moved the block though it shrank. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block[0] = 42;
    char *fresh = realloc(block, 99);
    if (fresh == block || fresh[0] != 42) return 97;
    announce_after_free("read of", block, block, 100);
    announce("ends", "SEGV");
    announce("stack read", "touch_read main");
    announce("stack freed", "main");
    touch_read(block);
    return 0;
}
