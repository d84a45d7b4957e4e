/* free_interior_huge.c - free of an address inside a block of 40 MiB, at a chunk. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(41943040);
    void *inside = at(block, 12582912);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
