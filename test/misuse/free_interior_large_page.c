/* free_interior_large_page.c - free of an address inside a large block, at a page. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100000);
    void *inside = at(block, 4096);
    expect_inside("free", inside, block);
    free(inside);
    return 0;
}
