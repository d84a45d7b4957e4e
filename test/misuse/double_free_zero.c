/* double_free_zero.c - a block of 0 bytes is freed twice in a row by its thread. */
#include "misuse.h"

int main(void)
{
    warm_up(0);
    void *block = malloc(0);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
