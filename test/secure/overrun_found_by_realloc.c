/* overrun_found_by_realloc.c - realloc looks, too. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    *(char *)at(block, 101) = 1;
    expect_overrun("realloc", block, 112, 101);
    return realloc(hidden(block), 500) == NULL;
}
