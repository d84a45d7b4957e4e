/* underflow_slack.c - a block at a page's end is written to before its start; free finds it. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, RIGHT);
    touch_write(block - 16);
    announce_found("underflow", block - 16, block, 100);
    announce("ends", "ABRT");
    block_drop(block);
    return 0;
}
