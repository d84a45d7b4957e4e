/* double_free_large_other_thread.c - a large block is freed by its thread and again by another one. */
#include "misuse.h"

static void *volatile handed_over;

/* Starts before the first free: starting a thread allocates, and might be given the block's memory. */
static void *wait_and_free(void *unused)
{
    while (handed_over == NULL)
        usleep(100);
    free(hidden(handed_over));
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_and_free, NULL) != 0)
        return 99;
    usleep(20000);
    void *block = malloc(200000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    expect_never("free", block);
    handed_over = block;
    pthread_join(thread, NULL);
    return 0;
}
