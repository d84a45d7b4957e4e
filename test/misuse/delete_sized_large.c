/* delete_sized_large.c - sized operator delete with a small size for a large block. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(300000);
    expect("delete: %p is a block of %zu bytes, but the caller says 64", block, malloc_usable_size(block));
    delete_sized(hidden(block), 64);
    return 0;
}
