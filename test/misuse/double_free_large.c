/* double_free_large.c - a block of 100000 bytes is freed twice; its memory may have gone back in between. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(100000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    expect_never("free", block);
    free(hidden(block));
    return 0;
}
