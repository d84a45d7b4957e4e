/* heap_double_free_then_clear.c - a block of a heap, freed by another thread and then by its own: found when the heap is cleared. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    in_thread(thread_free_again, hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    hak_heap_clear(held.heap);
    return 0;
}
