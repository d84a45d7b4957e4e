/* free_sized_freed.c - free_sized of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free_sized", block, bytes);
    free_sized(hidden(block), 100);
    return 0;
}
