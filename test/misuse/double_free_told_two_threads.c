/* double_free_told_two_threads.c - two threads that have heaps, one after the other, free the same block of a third. */
#include "misuse.h"

int main(void)
{
    warm_up(80);
    void *block = malloc(80);
    size_t bytes = malloc_usable_size(block);
    in_thread(thread_free_again, hidden(block));
    expect_double_free("free", block, bytes);
    in_thread(thread_free_again, hidden(block));
    collect(80);
    return 0;
}
