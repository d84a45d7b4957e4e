/* heap_of_freed.c - hak_heap_of a block that is free already. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("hak_heap_of", block, bytes);
    hidden(hak_heap_of(hidden(block)));
    return 0;
}
