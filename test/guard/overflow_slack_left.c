/* overflow_slack_left.c - a block at a page's start is overrun; free finds it. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 40, LEFT);
    touch_write(block + 2000);
    touch_write(block + 41);
    announce_found("overflow", block + 41, block, 40);
    announce("ends", "ABRT");
    block_drop(block);
    return 0;
}
