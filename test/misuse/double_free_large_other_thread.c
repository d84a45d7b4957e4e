/* double_free_large_other_thread.c - a large block is freed by its thread and again by another one. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(200000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    expect_never("free", block);
    in_thread(thread_free, hidden(block));
    return 0;
}
