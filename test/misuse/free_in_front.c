/* free_in_front.c - free of an address between a slab's start and its first block. */
#include "misuse.h"

static int compare(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    /* Slabs begin with a multiple of 64 KiB, and most of them with some lines that are no block's. */
    enum { COUNT = 2000, SIZE = 5000, SPAN = 1 << 16 };
    static uintptr_t blocks[COUNT];
    warm_up(SIZE);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = (uintptr_t)malloc(SIZE);
    qsort(blocks, COUNT, sizeof *blocks, compare);
    uintptr_t step = blocks[1] - blocks[0];
    for (int i = 2; i < COUNT; i++)
        if (step > blocks[i] - blocks[i - 1])
            step = blocks[i] - blocks[i - 1];
    for (int i = 1; i < COUNT; i++)
        if (blocks[i] - blocks[i - 1] != step && blocks[i] % SPAN >= 64 && blocks[i] % SPAN < 4096) {
            void *in_front = hidden((void *)(blocks[i] - 64));
            expect_never("free", in_front);
            free(in_front);
        }
    return 0;
}
