/* free_slab_tail.c - free of the bytes between the last block of a slab and its end. */
#include "misuse.h"

static int compare(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    /* Blocks of 992 bytes fill no power of two: where two slabs meet, the step is a little longer. */
    enum { COUNT = 3000, SIZE = 992 };
    static uintptr_t blocks[COUNT];
    warm_up(SIZE);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = (uintptr_t)malloc(SIZE);
    qsort(blocks, COUNT, sizeof *blocks, compare);
    for (int i = 1; i < COUNT; i++)
        if (blocks[i] - blocks[i - 1] > SIZE && blocks[i] - blocks[i - 1] < 2 * SIZE) {
            void *tail = hidden((void *)(blocks[i - 1] + SIZE));
            expect_never("free", tail);
            free(tail);
        }
    return 0;
}
