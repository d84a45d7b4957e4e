/* double_free_wide_alignment.c - a block at an alignment of 1 GiB is freed twice: before it lie addresses of which there are no records. */
#include "misuse.h"

int main(void)
{
    void *block = aligned_alloc((size_t)1 << 30, 1 << 20);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    expect_never("free", block);
    free(hidden(block));
    return 0;
}
