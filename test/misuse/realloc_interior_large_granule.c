/* realloc_interior_large_granule.c - realloc of an address inside a large block, at a granule. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(300000);
    void *inside = at(block, 131072);
    expect_inside("realloc", inside, block);
    *(volatile char *)hidden(realloc(inside, 5000)) = 1;
    return 0;
}
