/* double_free_kept_owner_then_thread.c - of a block above 1 KiB, which its owner keeps: the owner frees a block, then another thread does. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    in_thread(thread_free, hidden(block));
    collect(4000);
    return 0;
}
