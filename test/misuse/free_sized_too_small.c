/* free_sized_too_small.c - free_sized says less than the block has. */
#include "misuse.h"

int main(void)
{
    warm_up(1000);
    void *block = malloc(1000);
    expect("free_sized: %p is a block of %zu bytes, but the caller says 10", block, malloc_usable_size(block));
    free_sized(hidden(block), 10);
    return 0;
}
