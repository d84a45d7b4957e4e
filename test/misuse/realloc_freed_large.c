/* realloc_freed_large.c - realloc of a large block that is free already. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(300000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    expect_never("realloc", block);
    *(volatile char *)hidden(realloc(hidden(block), 1000)) = 1;
    return 0;
}
