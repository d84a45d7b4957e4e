/* realloc_kept_stays.c - realloc, to a size that it would have room for, of a block above 1 KiB that is free, and kept for the next malloc. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    *(volatile char *)hidden(realloc(hidden(block), 3990)) = 1;
    return 0;
}
