/* heap_free_cleared.c - a block of a heap that was cleared, freed. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    hak_heap_clear(heap);
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
