/* heap_free_sized_too_large.c - free_sized of a block of a heap with more than it has. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    expect("free_sized: %p is a block of %zu bytes, but the caller says %zu", block, bytes, bytes + 100);
    free_sized(hidden(block), bytes + 100);
    return 0;
}
