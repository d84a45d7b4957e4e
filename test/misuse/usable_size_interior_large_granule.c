/* usable_size_interior_large_granule.c - malloc_usable_size of an address inside a large block, at a granule. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(300000);
    void *inside = at(block, 131072);
    expect_inside("malloc_usable_size", inside, block);
    hidden((void *)malloc_usable_size(inside));
    return 0;
}
