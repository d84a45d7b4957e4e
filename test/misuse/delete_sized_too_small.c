/* delete_sized_too_small.c - sized operator delete with a size below the block's. */
#include "misuse.h"

int main(void)
{
    warm_up(800);
    void *block = malloc(800);
    expect("delete: %p is a block of %zu bytes, but the caller says 16", block, malloc_usable_size(block));
    delete_sized(hidden(block), 16);
    return 0;
}
