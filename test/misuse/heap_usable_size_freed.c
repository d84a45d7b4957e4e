/* heap_usable_size_freed.c - malloc_usable_size of a block of a heap that its thread freed, and keeps. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(4000);
    free(hidden(held.block));
    expect_freed("malloc_usable_size", held.block, held.bytes);
    hidden((void *)malloc_usable_size(hidden(held.block)));
    return 0;
}
