/* double_delete_large.c - operator delete of a block of 200000 bytes that is free already: the message names delete. */
#include "misuse.h"

int main(void)
{
    warm_up(200000);
    void *block = malloc(200000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("delete", block, bytes);
    delete_plain(hidden(block));
    return 0;
}
