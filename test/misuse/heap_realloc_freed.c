/* heap_realloc_freed.c - realloc of a block of a heap that is free already. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    free(hidden(held.block));
    expect_double_free("realloc", held.block, held.bytes);
    held.block = hidden(realloc(hidden(held.block), 200));
    return 0;
}
