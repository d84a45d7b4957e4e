/* usable_size_freed.c - malloc_usable_size of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("malloc_usable_size", block, bytes);
    hidden((void *)malloc_usable_size(hidden(block)));
    return 0;
}
