/* realloc_interior_large.c - realloc of an address inside a large block. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100000);
    void *inside = at(block, 16);
    expect_inside("realloc", inside, block);
    *(volatile char *)hidden(realloc(inside, 5000)) = 1;
    return 0;
}
