/* free_sized_too_large.c - free_sized says more than the block has. */
#include "misuse.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    expect("free_sized: %p is a block of %zu bytes, but the caller says 5000", block, malloc_usable_size(block));
    free_sized(hidden(block), 5000);
    return 0;
}
