/* double_free_told_slab_ends.c - a thread that has a heap frees a block; its owner frees it, too, and all others of its slab. */
#include "misuse.h"

int main(void)
{
    static void *blocks[4000];
    for (int i = 0; i < 4000; i++)
        blocks[i] = malloc(300);
    size_t bytes = malloc_usable_size(blocks[2000]);
    in_thread(thread_free_again, hidden(blocks[2000]));
    expect_double_free("free", blocks[2000], bytes);
    expect_never("free", blocks[2000]);
    for (int i = 0; i < 4000; i++)
        free(hidden(blocks[i]));
    hak_collect();
    return 0;
}
