/* overflow_calloc.c - a block of calloc is written to just behind its end. */
#include "guard.h"

int main(void)
{
    for (int i = 0; i < 400; i++) {
        char *block = calloc(4, 40);
        for (int at = 0; at < 160; at++) if (block[at]) return 97;
        if (!guard_row(block) || ((uintptr_t)block + 160) % PAGE) continue;
        announce_overflow("write to", block + 160, block, 160);
        announce("ends", "SEGV");
        touch_write(hidden(block + 160));
    }
    return 0;
}
