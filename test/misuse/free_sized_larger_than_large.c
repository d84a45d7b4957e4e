/* free_sized_larger_than_large.c - free_sized says more than a large block has. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(300000);
    expect("free_sized: %p is a block of %zu bytes, but the caller says 900000", block, malloc_usable_size(block));
    free_sized(hidden(block), 900000);
    return 0;
}
