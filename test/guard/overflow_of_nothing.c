/* overflow_of_nothing.c - a block of no bytes is written to; free finds it. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 0, RIGHT);
    size_t bytes = guard_row(block)->requested_bytes; /* 0, or 1 where malloc(0) is malloc(1) on its way */
    if (bytes > 1) return 97;
    touch_write(block + bytes);
    announce_found("overflow", block + bytes, block, bytes);
    announce("ends", "ABRT");
    block_drop(block);
    return 0;
}
