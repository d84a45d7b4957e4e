/* heap_double_free_middle.c - a block of a heap above 1 KiB, which is kept, freed twice by its thread. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(4000);
    free(hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    return 0;
}
