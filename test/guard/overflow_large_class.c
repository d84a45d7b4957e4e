/* overflow_large_class.c - a block of 20,000 bytes is written to just behind its end. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 20000, RIGHT);
    announce_overflow("write to", block + 20000, block, 20000);
    announce("ends", "SEGV");
    announce("stack written", "touch_write main");
    touch_write(block + 20000);
    return 0;
}
