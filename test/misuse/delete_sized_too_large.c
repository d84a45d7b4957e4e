/* delete_sized_too_large.c - sized operator delete with a size above the block's. */
#include "misuse.h"

int main(void)
{
    warm_up(48);
    void *block = malloc(48);
    expect("delete: %p is a block of %zu bytes, but the caller says 4000", block, malloc_usable_size(block));
    delete_sized(hidden(block), 4000);
    return 0;
}
