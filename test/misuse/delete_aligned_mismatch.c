/* delete_aligned_mismatch.c - aligned operator delete with an alignment that the block has not. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100);
    while (((uintptr_t)block & 4095) == 0)
        block = malloc(100);
    expect("delete: %p is not aligned to 4096, as the caller says", (void *)block);
    delete_aligned(hidden(block), 4096);
    return 0;
}
