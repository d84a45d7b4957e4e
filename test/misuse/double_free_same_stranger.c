/* double_free_same_stranger.c - one other thread frees a block twice in a row. */
#include "misuse.h"

static void *free_twice(void *block)
{
    free(hidden(block));
    free(hidden(block));
    return NULL;
}

int main(void)
{
    warm_up(80);
    void *block = malloc(80);
    expect_double_free("free", block, malloc_usable_size(block));
    in_thread(free_twice, hidden(block));
    collect(80);
    return 0;
}
