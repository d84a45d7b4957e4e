/* heap_double_free_small.c - a small block of a heap, freed twice by its thread. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    free(hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    return 0;
}
