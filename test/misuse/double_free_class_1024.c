/* double_free_class_1024.c - a block of 1024 bytes is freed twice in a row by its thread. */
#include "misuse.h"

int main(void)
{
    warm_up(1024);
    void *block = malloc(1024);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
