/* control_heaps.c - every way to free a block of a heap once. */
#include "misuse.h"

static hak_heap_t *heap;

static void *in_another(void *unused)
{
    for (size_t size = 1; size < 200000; size = size * 3 / 2 + 7) {
        free(hidden(hak_heap_malloc(heap, size)));
        free_sized(hidden(hak_heap_malloc(heap, size)), size);
        free_aligned_sized(hidden(hak_heap_aligned_alloc(heap, 64, size)), 64, size);
        delete_plain(hidden(hak_heap_malloc(heap, size)));
        delete_sized(hidden(hak_heap_malloc(heap, size)), size);
        void *block = hidden(realloc(hidden(hak_heap_malloc(heap, size)), size * 2));
        free_sized(hidden(hak_heap_realloc(heap, block, size * 3)), size * 3);
        thread_free(hidden(hak_heap_calloc(heap, 2, size)));
    }
    return unused;
}

int main(void)
{
    heap = hak_heap_new(0);
    for (int i = 0; i < 3; i++) {
        in_another(NULL);
        in_thread(in_another, NULL);
        hak_heap_clear(heap);
    }
    hak_heap_destroy(heap);
    return 0;
}
