/* hak_usable_size_freed.c - hak_usable_size of a large block that is free already. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(100000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("hak_usable_size", block, bytes);
    hidden((void *)hak_usable_size(hidden(block)));
    return 0;
}
