/* heap_double_free_owner_then_thread.c - a block of a heap, freed by the thread that allocated it and then by another. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    free(hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    in_thread(thread_free_again, hidden(held.block));
    return 0;
}
