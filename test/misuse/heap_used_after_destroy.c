/* heap_used_after_destroy.c - a block is wanted of a heap that was destroyed. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    free(hidden(hak_heap_malloc(heap, 80)));
    hak_heap_destroy(heap);
    expect("hak_heap_malloc: %p is no heap: never made, or destroyed already", (void *)heap);
    free(hidden(hak_heap_malloc(heap, 80)));
    return 0;
}
