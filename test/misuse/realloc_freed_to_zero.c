/* realloc_freed_to_zero.c - realloc(p, 0) of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    hidden(realloc(hidden(block), 0));
    return 0;
}
