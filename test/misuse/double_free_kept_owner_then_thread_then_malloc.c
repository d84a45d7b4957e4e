/* double_free_kept_owner_then_thread_then_malloc.c - of a block above 1 KiB, which its owner keeps: the owner frees a block, then another
 * thread does, and the owner's next malloc of the size would hand it out before any mail is read. */
#include "misuse.h"

int main(void)
{
    warm_up(2000);
    void *block = malloc(2000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    in_thread(thread_free, hidden(block));
    for (int i = 0; i < 3; i++) hidden(malloc(2000));
    return 0;
}
