/* realloc_interior_medium.c - realloc, to a size that it would have room for, of an address inside a block of 5,000 bytes. */
#include "misuse.h"

int main(void)
{
    warm_up(5000);
    char *block = malloc(5000);
    void *inside = at(block, 2048);
    expect_inside("realloc", inside, block);
    *(volatile char *)hidden(realloc(inside, 4990)) = 1;
    return 0;
}
