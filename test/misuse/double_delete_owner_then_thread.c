/* double_delete_owner_then_thread.c - operator delete of another thread's block that its owner freed before: found at once, and the message names delete. */
#include "misuse.h"

static void *delete_again(void *block)
{
    free(hidden(malloc(80)));
    delete_plain(block);
    _exit(0);
}

int main(void)
{
    warm_up(96);
    void *kept = malloc(96), *block = malloc(96);
    size_t bytes = malloc_usable_size(block);
    delete_plain(hidden(block));
    expect_double_free("delete", block, bytes);
    in_thread(delete_again, hidden(block));
    free(hidden(kept));
    return 0;
}
