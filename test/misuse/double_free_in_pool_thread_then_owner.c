/* double_free_in_pool_thread_then_owner.c - a thread frees another's block in a pool, then its owner does, and collects. */
#include "pool.h"

static void *free_it(void *block)
{
    free(hidden(block));
    return NULL;
}

int main(void)
{
    void *block = pool_block();
    size_t bytes = malloc_usable_size(block);
    pthread_t thread;
    pthread_create(&thread, NULL, free_it, block);
    pthread_join(thread, NULL);
    expect_double_free("free", block, bytes);
    free(hidden(block));
    hak_collect();
    return 0;
}
