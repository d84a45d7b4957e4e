/* overrun_found_by_usable_size.c - and malloc_usable_size. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    *(char *)at(block, 100) = 1;
    expect_overrun("malloc_usable_size", block, 112, 100);
    return (int)malloc_usable_size(hidden(block));
}
