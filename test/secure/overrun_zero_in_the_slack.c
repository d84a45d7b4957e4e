/* overrun_zero_in_the_slack.c - the same with a zero, the third byte behind. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    *(char *)at(block, 102) = 0;
    expect_overrun("free", block, 112, 102);
    free(hidden(block));
    return 0;
}
