/* double_delete.c - operator delete of a block that is free already. */
#include "misuse.h"

int main(void)
{
    warm_up(40);
    void *block = malloc(40);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("delete", block, bytes);
    delete_plain(hidden(block));
    return 0;
}
