/* double_free_after_other_sizes.c - a block is freed again after other classes allocated and freed. */
#include "misuse.h"

int main(void)
{
    warm_up(48);
    void *block = malloc(48);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    for (int i = 0; i < 5000; i++)
        free(hidden(malloc((size_t)(i % 50) * 40 + 100)));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
