/* free_sized_large_next_page.c - free_sized says of a large block what is a page more than was asked for. */
#include "misuse.h"

int main(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < page; i += page / 8) /* its last page is the same */
        free_sized(hidden(malloc(40 * page - i)), 40 * page - page + 1);
    void *block = malloc(40 * page);
    expect("free_sized: %p is a block of %zu bytes, but the caller says %zu", block, malloc_usable_size(block), 39 * page);
    free_sized(hidden(block), 39 * page);
    return 0;
}
