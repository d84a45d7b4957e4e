/* usable_size_interior_large.c - malloc_usable_size of an address inside a large block. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100000);
    void *inside = at(block, 16);
    expect_inside("malloc_usable_size", inside, block);
    hidden((void *)malloc_usable_size(inside));
    return 0;
}
