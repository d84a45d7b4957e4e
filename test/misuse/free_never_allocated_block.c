/* free_never_allocated_block.c - free of a block of a slab that was never handed out. */
#include "misuse.h"

int main(void)
{
    /* The slab is cut and the block exists, but malloc never returned it: it is free, and is called so. */
    warm_up(1008);
    char *block = malloc(1008);
    uintptr_t slab = (uintptr_t)block & ~(uintptr_t)65535;
    size_t index = 64;
    void *last = hidden((void *)(slab + index * 1008));
    for (int i = 0; i < 10; i++)
        if (hidden(malloc(1008)) == last)
            return 0;
    expect_double_free("free", last, 1008);
    expect_never("free", last);
    free(last);
    return 0;
}
