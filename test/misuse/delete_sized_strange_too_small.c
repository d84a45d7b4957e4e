/* delete_sized_strange_too_small.c - sized operator delete, by another thread, with a size below the block's. */
#include "misuse.h"

static void *delete_less(void *block)
{
    free(hidden(malloc(80)));
    delete_sized(block, 64);
    return NULL;
}

int main(void)
{
    warm_up(400);
    void *block = malloc(400);
    expect("delete: %p is a block of %zu bytes, but the caller says 64", block, malloc_usable_size(block));
    in_thread(delete_less, hidden(block));
    return 0;
}
