/* double_free_medium.c - a block of 5000 bytes is freed twice in a row by its thread. */
#include "misuse.h"

int main(void)
{
    warm_up(5000);
    void *block = malloc(5000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
