/* double_free_told_owner_then_thread.c - the owner frees a block, then another thread that has a heap does. */
#include "misuse.h"

int main(void)
{
    warm_up(80);
    void *block = malloc(80);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    in_thread(thread_free_again, hidden(block));
    collect(80);
    return 0;
}
