/* realloc_freed.c - realloc of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    *(volatile char *)hidden(realloc(hidden(block), 1000)) = 1;
    return 0;
}
