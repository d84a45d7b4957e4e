/* free_interior_odd.c - free of an address inside a small block, not aligned. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    void *inside = at(block, 1);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
