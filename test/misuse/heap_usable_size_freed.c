/* heap_usable_size_freed.c - malloc_usable_size of a block of a heap that its thread freed, and keeps. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 4000)) = 1;
    void *block = hak_heap_malloc(heap, 4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_freed("malloc_usable_size", block, bytes);
    hidden((void *)malloc_usable_size(hidden(block)));
    return 0;
}
