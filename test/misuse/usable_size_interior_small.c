/* usable_size_interior_small.c - malloc_usable_size of an address inside a small block. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    void *inside = at(block, 16);
    expect_inside("malloc_usable_size", inside, block);
    hidden((void *)malloc_usable_size(inside));
    return 0;
}
