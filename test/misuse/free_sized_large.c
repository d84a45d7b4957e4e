/* free_sized_large.c - free_sized says a small size for a large block. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(300000);
    expect("free_sized: %p is a block of %zu bytes, but the caller says 64", block, malloc_usable_size(block));
    free_sized(hidden(block), 64);
    return 0;
}
