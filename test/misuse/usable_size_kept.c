/* usable_size_kept.c - malloc_usable_size of a block above 1 KiB that is free, and kept for the next malloc. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("malloc_usable_size", block, bytes);
    hidden((void *)malloc_usable_size(hidden(block)));
    return 0;
}
