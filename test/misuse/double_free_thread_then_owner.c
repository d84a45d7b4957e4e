/* double_free_thread_then_owner.c - another thread frees a block and ends, then the owner does. */
#include "misuse.h"

int main(void)
{
    warm_up(80);
    void *block = malloc(80);
    size_t bytes = malloc_usable_size(block);
    in_thread(thread_free, hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    collect(80);
    return 0;
}
