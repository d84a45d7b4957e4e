/* double_free_told_thread_then_owner.c - a thread that has a heap frees a block, then its owner does. */
#include "misuse.h"

int main(void)
{
    warm_up(80);
    void *block = malloc(80);
    size_t bytes = malloc_usable_size(block);
    in_thread(thread_free_again, hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    collect(80);
    return 0;
}
