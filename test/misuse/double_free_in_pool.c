/* double_free_in_pool.c - a long-lived block of a class that was split by lifetime is freed twice. */
#include "pool.h"

int main(void)
{
    void *block = pool_block();
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
