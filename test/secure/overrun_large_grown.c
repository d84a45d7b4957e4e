/* overrun_large_grown.c - nor behind those that it has after it grew and shrank, in place and by moved pages. */
#include "secure.h"

int main(void)
{
    char *block = malloc(100000);
    for (size_t bytes = 200000; bytes < 40000000; bytes *= 3)
        block = realloc(block, bytes);
    block = realloc(block, 3000000);
    size_t bytes = malloc_usable_size(hidden(block));
    memset(hidden(block), 1, bytes);
    expect_fault();
    *(volatile char *)at(block, (long)bytes) = 1;
    return 0;
}
