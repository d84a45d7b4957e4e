/* heap_double_free_thread_then_owner.c - a block of a heap, freed by another thread and then by the one that allocated it. */
#include "misuse.h"

int main(void)
{
    hak_heap_t *heap = hak_heap_new(0);
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    void *block = hak_heap_malloc(heap, 80);
    size_t bytes = malloc_usable_size(block);
    in_thread(thread_free_again, hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    for (int i = 0; i < 20000; i++) /* it takes in what others gave back */
        *(volatile char *)hidden(hak_heap_malloc(heap, 80)) = 1;
    return 0;
}
