/* heap_realloc_freed.c - realloc of a block of a heap that is free already. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("realloc", block, bytes);
    block = hidden(realloc(hidden(block), 200));
    return 0;
}
