/* heap_free_destroyed_large.c - a large block of a heap that was destroyed, freed. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(100000);
    hak_heap_destroy(held.heap);
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    return 0;
}
