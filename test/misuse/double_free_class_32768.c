/* double_free_class_32768.c - a block of 32768 bytes is freed twice in a row by its thread. */
#include "misuse.h"

int main(void)
{
    warm_up(32768);
    void *block = malloc(32768);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
