/* usable_size_interior_medium.c - malloc_usable_size of an address inside a block of 5,000 bytes. */
#include "misuse.h"

int main(void)
{
    warm_up(5000);
    char *block = malloc(5000);
    void *inside = at(block, 2048);
    expect_inside("malloc_usable_size", inside, block);
    hidden((void *)malloc_usable_size(inside));
    return 0;
}
