/* double_free_small.c - a block of 100 bytes is freed twice in a row by its thread. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
