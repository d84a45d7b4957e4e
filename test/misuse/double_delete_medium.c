/* double_delete_medium.c - operator delete of a block of 5000 bytes that is free already: the message names delete. */
#include "misuse.h"

int main(void)
{
    warm_up(5000);
    void *block = malloc(5000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("delete", block, bytes);
    delete_plain(hidden(block));
    return 0;
}
