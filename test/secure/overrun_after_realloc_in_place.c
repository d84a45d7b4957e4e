/* overrun_after_realloc_in_place.c - what realloc took away lies behind the end. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    if (realloc(block, 80) != block)
        return 98;
    *(char *)at(block, 80) = 1;
    expect_overrun("free", block, 112, 80);
    free(hidden(block));
    return 0;
}
