/* heap.h - what the misuses of a heap's blocks share: a block of a heap of the program's own, which holds a hundred others of that size.
 *
 * Owns:   nothing.
 */
#ifndef HAK_TEST_MISUSE_HEAP_H
#define HAK_TEST_MISUSE_HEAP_H

#include "misuse.h"

struct held {
    hak_heap_t *heap;
    void *block;
    size_t bytes; /* of it that may be used */
};

static inline void heap_fill(hak_heap_t *heap, size_t bytes, int count)
{
    for (int i = 0; i < count; i++)
        *(volatile char *)hidden(hak_heap_malloc(heap, bytes)) = 1;
}

static inline struct held heap_block(size_t bytes)
{
    struct held held = {hak_heap_new(0), NULL, 0};
    heap_fill(held.heap, bytes, 100);
    held.block = hak_heap_malloc(held.heap, bytes);
    held.bytes = malloc_usable_size(held.block);
    return held;
}

#endif
