/* realloc_interior_huge.c - realloc of an address inside a block of 40 MiB, at a chunk. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(41943040);
    void *inside = at(block, 12582912);
    expect_inside("realloc", inside, block);
    *(volatile char *)hidden(realloc(inside, 5000)) = 1;
    return 0;
}
