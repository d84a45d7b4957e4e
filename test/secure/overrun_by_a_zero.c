/* overrun_by_a_zero.c - a string's last byte lies behind the block: the commonest of all overruns. */
#include "secure.h"

int main(void)
{
    warm_up(24);
    char *block = malloc(24); /* 24 and the word: no byte between them */
    memset(hidden(block), 'x', 24);
    *(char *)at(block, 24) = 0;
    expect_overrun("free", block, 32, 24);
    free(hidden(block));
    return 0;
}
