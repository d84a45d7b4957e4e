/* delete_interior_strange.c - operator delete, by another thread, of an address inside a block. */
#include "misuse.h"

static void *delete_inside(void *block)
{
    free(hidden(malloc(80)));
    delete_plain(at(block, 32));
    return NULL;
}

int main(void)
{
    warm_up(400);
    void *block = malloc(400);
    expect_inside("delete", at(block, 32), block);
    in_thread(delete_inside, hidden(block));
    return 0;
}
