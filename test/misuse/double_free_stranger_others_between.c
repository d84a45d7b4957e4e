/* double_free_stranger_others_between.c - another thread frees a block, then many others, then the first again. */
#include "misuse.h"

static void *free_many(void *argument)
{
    void **blocks = argument;
    for (int i = 0; i < 900; i++)
        free(hidden(blocks[i]));
    free(hidden(blocks[3]));
    return NULL;
}

int main(void)
{
    static void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        blocks[i] = malloc(112);
    expect_double_free("free", blocks[3], malloc_usable_size(blocks[3]));
    in_thread(free_many, blocks);
    collect(112);
    return 0;
}
