/* heap_double_free_thread_then_owner.c - a block of a heap, freed by another thread and then by the one that allocated it. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    in_thread(thread_free_again, hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    heap_fill(held.heap, 80, 20000); /* it takes in what others gave back */
    return 0;
}
