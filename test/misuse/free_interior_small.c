/* free_interior_small.c - free of an address inside a small block. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    void *inside = at(block, 16);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
