/* heap_free_interior.c - free of a pointer into a block of a heap. */
#include "heap.h"

int main(void)
{
    struct held held = heap_block(80);
    expect_inside("free", at(held.block, 16), held.block);
    free(at(held.block, 16));
    return 0;
}
