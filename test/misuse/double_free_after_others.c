/* double_free_after_others.c - a block is freed again after 3,000 others of its class were freed in between. */
#include "misuse.h"

int main(void)
{
    static void *blocks[4000];
    for (int i = 0; i < 4000; i++)
        blocks[i] = malloc(64);
    size_t bytes = malloc_usable_size(blocks[7]);
    for (int i = 0; i < 3000; i++)
        free(hidden(blocks[i]));
    expect_double_free("free", blocks[7], bytes);
    free(hidden(blocks[7]));
    return 0;
}
