/* overrun_in_the_slack.c - one byte behind 100, in a block of 112. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    *(char *)at(block, 100) = 7;
    expect_overrun("free", block, 112, 100);
    free(hidden(block));
    return 0;
}
