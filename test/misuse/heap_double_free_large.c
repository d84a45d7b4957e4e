/* heap_double_free_large.c - a large block of a heap, freed twice. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(100000);
    free(hidden(held.block));
    expect_double_free("free", held.block, held.bytes);
    free(hidden(held.block));
    return 0;
}
