/* heap_free_interior.c - free of a pointer into a block of a heap. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    (void)bytes;
    expect_inside("free", at(block, 16), block);
    free(at(block, 16));
    return 0;
}
