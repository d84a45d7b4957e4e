/* overrun_in_heap.c - a block of a heap of the program's own. */
#include "secure.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        hak_heap_malloc(heap, 100);
    char *block = hak_heap_malloc(heap, 100);
    *(char *)at(block, 100) = 1;
    expect_overrun("free", block, 112, 100);
    free(hidden(block));
    return 0;
}
