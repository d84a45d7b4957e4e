/* free_aligned_sized_size.c - free_aligned_sized says a wrong size. */
#include "misuse.h"

int main(void)
{
    void *block = aligned_alloc(64, 1024);
    expect("free_aligned_sized: %p is a block of %zu bytes, but the caller says 100000", block, malloc_usable_size(block));
    free_aligned_sized(hidden(block), 64, 100000);
    return 0;
}
