/* free_never_allocated_block.c - free of a block of a slab that was never handed out. */
#include "misuse.h"

int main(void)
{
    /* The slab is cut and the block exists, but malloc never returned it: it is free, and is called so. The
     * highest block handed out so far is taken, and one well above it, beyond the thread's current word. */
    enum { SIZE = 1024 };
    uintptr_t highest = 0;
    for (int i = 0; i < 40; i++) {
        uintptr_t block = (uintptr_t)malloc(SIZE);
        highest = block > highest ? block : highest;
    }
    void *never = hidden((void *)(highest + 20 * SIZE));
    expect_double_free("free", never, SIZE);
    expect_never("free", never);
    free(never);
    return 0;
}
