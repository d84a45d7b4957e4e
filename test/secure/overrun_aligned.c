/* overrun_aligned.c - an aligned block ends where was asked for as well. */
#include "secure.h"

int main(void)
{
    warm_up(120);
    char *block = aligned_alloc(64, 100);
    *(char *)at(block, 100) = 1;
    expect_overrun("free", block, 128, 100);
    free(hidden(block));
    return 0;
}
