/* heap_of_freed.c - hak_heap_of a block that is free already. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    free(hidden(held.block));
    expect_freed("hak_heap_of", held.block, held.bytes);
    hidden(hak_heap_of(hidden(held.block)));
    return 0;
}
