/* free_interior_large_granule.c - free of an address inside a large block, at a granule. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(300000);
    void *inside = at(block, 131072);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
