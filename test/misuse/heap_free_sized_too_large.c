/* heap_free_sized_too_large.c - free_sized of a block of a heap with more than it has. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    expect("free_sized: %p is a block of %zu bytes, but the caller says %zu", held.block, held.bytes, held.bytes + 100);
    free_sized(hidden(held.block), held.bytes + 100);
    return 0;
}
