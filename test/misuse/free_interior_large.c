/* free_interior_large.c - free of an address inside a large block. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100000);
    void *inside = at(block, 16);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
