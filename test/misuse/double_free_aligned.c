/* double_free_aligned.c - an aligned block is freed twice. */
#include "misuse.h"

int main(void)
{
    void *block = aligned_alloc(256, 512);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
