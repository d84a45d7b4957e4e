/* heap_double_free_two_threads.c - two threads, one after the other, free the same block of a third's heap. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    in_thread(thread_free_again, hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    in_thread(thread_free_again, hidden(held.block));
    return 0;
}
