/* double_free_block_of_dead_thread.c - a block of a thread that has ended is freed twice by the main thread. */
#include "misuse.h"

static void *allocate(void *slot)
{
    warm_up(96);
    *(void **)slot = malloc(96);
    return NULL;
}

int main(void)
{
    void *block = NULL;
    in_thread(allocate, &block);
    expect_double_free("free", block, malloc_usable_size(block));
    free(hidden(block));
    free(hidden(block));
    collect(96);
    return 0;
}
