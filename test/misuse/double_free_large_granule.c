/* double_free_large_granule.c - a block of 65536 bytes is freed twice; its memory may have gone back in between. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(65536);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    expect_never("free", block);
    free(hidden(block));
    return 0;
}
