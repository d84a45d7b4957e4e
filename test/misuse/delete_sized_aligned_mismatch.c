/* delete_sized_aligned_mismatch.c - sized and aligned operator delete with a wrong size. */
#include "misuse.h"

int main(void)
{
    void *block = aligned_alloc(128, 256);
    expect("delete: %p is a block of %zu bytes, but the caller says 70000", block, malloc_usable_size(block));
    delete_sized_aligned(hidden(block), 70000, 128);
    return 0;
}
