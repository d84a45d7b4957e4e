/* usable_size_freed_medium.c - malloc_usable_size of a block above 1 KiB that is free in its slab: more were freed than are kept. */
#include "misuse.h"

int main(void)
{
    enum { COUNT = 100 };
    static void *blocks[COUNT];
    warm_up(4000);
    for (int i = 0; i < COUNT; i++) blocks[i] = malloc(4000);
    size_t bytes = malloc_usable_size(blocks[COUNT - 1]);
    for (int i = 0; i < COUNT - 1; i++) free(hidden(blocks[i])); /* one stays, and holds the slab */
    expect_freed("malloc_usable_size", blocks[COUNT / 2], bytes);
    hidden((void *)malloc_usable_size(hidden(blocks[COUNT / 2])));
    return 0;
}
