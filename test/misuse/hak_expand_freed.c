/* hak_expand_freed.c - hak_expand of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("hak_expand", block, bytes);
    hak_expand(hidden(block), 101);
    return 0;
}
