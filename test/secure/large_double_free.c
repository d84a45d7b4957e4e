/* large_double_free.c - a large block that waits is free. */
#include "secure.h"

int main(void)
{
    void *block = malloc(100000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
