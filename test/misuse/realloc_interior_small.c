/* realloc_interior_small.c - realloc of an address inside a small block. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    void *inside = at(block, 16);
    expect_inside("realloc", inside, block);
    *(volatile char *)hidden(realloc(inside, 5000)) = 1;
    return 0;
}
