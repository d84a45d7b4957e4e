/* hak_free_at_freed.c - hak_free_at of a block that is free already. */
#include "misuse.h"

int main(void)
{
    hak_site_t site = HAK_SITE;
    void *block = hak_alloc_at(100, site);
    size_t bytes = malloc_usable_size(block);
    hak_free_at(hidden(block), site);
    expect_double_free("hak_free_at", block, bytes);
    hak_free_at(hidden(block), site);
    return 0;
}
