/* overflow_aligned.c - a block aligned to 256 is written to just behind its end. */
#include "guard.h"

int main(void)
{
    char *block = guarded(256, 512, RIGHT);
    if ((uintptr_t)block % 256) return 97;
    announce_overflow("write to", block + 512, block, 512);
    announce("ends", "SEGV");
    touch_write(block + 512);
    return 0;
}
