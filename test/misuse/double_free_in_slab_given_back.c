/* double_free_in_slab_given_back.c - a block is freed again after every block of its slab was freed and collected. */
#include "misuse.h"

int main(void)
{
    static void *blocks[4000];
    for (int i = 0; i < 4000; i++)
        blocks[i] = malloc(300);
    size_t bytes = malloc_usable_size(blocks[2000]);
    for (int i = 0; i < 4000; i++)
        free(hidden(blocks[i]));
    hak_collect();
    expect_double_free("free", blocks[2000], bytes);
    expect_never("free", blocks[2000]);
    free(hidden(blocks[2000]));
    return 0;
}
