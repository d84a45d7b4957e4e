/* double_free_kept_thread_then_owner.c - of a block above 1 KiB, which its owner keeps: another thread frees a block and ends, then the owner does. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    in_thread(thread_free, hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    collect(4000);
    return 0;
}
