/* free_slab_tail.c - free of the bytes between the last block of a slab and its end. */
#include "misuse.h"

int main(void)
{
    /* 65 blocks of 1,008 bytes leave 16 bytes of a slab of 64 KiB. */
    warm_up(1008);
    void *block = malloc(1008);
    void *tail = hidden((void *)(((uintptr_t)block & ~(uintptr_t)65535) + 65 * 1008));
    expect_never("free", tail);
    free(tail);
    return 0;
}
