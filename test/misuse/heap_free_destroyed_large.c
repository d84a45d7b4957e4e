/* heap_free_destroyed_large.c - a large block of a heap that was destroyed, freed. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 100000)) = 1;
    void *block = hak_heap_malloc(heap, 100000);
    size_t bytes = malloc_usable_size(block);
    hak_heap_destroy(heap);
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
