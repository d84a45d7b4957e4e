/* heap_destroyed_twice.c - a heap is destroyed twice. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    hak_heap_destroy(heap);
    expect("hak_heap_destroy: %p is no heap: never made, or destroyed already", (void *)heap);
    hak_heap_destroy((hak_heap_t *)hidden(heap));
    return 0;
}
