/* free_interior_medium.c - free of an address inside a block of 5,000 bytes. */
#include "misuse.h"

int main(void)
{
    warm_up(5000);
    char *block = malloc(5000);
    void *inside = at(block, 2048);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
