/* usable_size_interior_huge.c - malloc_usable_size of an address inside a block of 40 MiB, at a chunk. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(41943040);
    void *inside = at(block, 12582912);
    expect_inside("malloc_usable_size", inside, block);
    hidden((void *)malloc_usable_size(inside));
    return 0;
}
