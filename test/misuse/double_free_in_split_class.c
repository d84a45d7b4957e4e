/* double_free_in_split_class.c - a short-lived block of a class that was split by lifetime is freed twice. */
#include "pool.h"

int main(void)
{
    pool_block();
    void *block = malloc(POOL_BYTES);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
