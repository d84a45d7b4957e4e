/* overflow_realloc.c - a block is overrun and then grown; realloc finds it. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, RIGHT);
    touch_write(block + 101);
    announce_found("overflow", block + 101, block, 100);
    announce("ends", "ABRT");
    announce("stack passed to the library", "main");
    return realloc(block, 5000) == NULL;
    return 0;
}
