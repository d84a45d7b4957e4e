/* realloc_kept.c - realloc of a block above 1 KiB that was freed and is kept for the next malloc. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    return realloc(hidden(block), 8000) == NULL;
}
