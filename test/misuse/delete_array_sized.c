/* delete_array_sized.c - sized operator delete[] with a wrong size. */
#include "misuse.h"

int main(void)
{
    warm_up(48);
    void *block = malloc(48);
    size_t bytes = malloc_usable_size(block);
    expect("delete[]: %p is a block of %zu bytes, but the caller says 4000", block, bytes);
    expect("delete: %p is a block of %zu bytes, but the caller says 4000", block, bytes);
    delete_array_sized(hidden(block), 4000);
    return 0;
}
