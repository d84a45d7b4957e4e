/* heap_free_cleared.c - a block of a heap that was cleared, freed. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    hak_heap_clear(held.heap);
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    return 0;
}
