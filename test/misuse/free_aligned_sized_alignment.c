/* free_aligned_sized_alignment.c - free_aligned_sized says a wrong alignment. */
#include "misuse.h"

int main(void)
{
    char *block = malloc(100);
    while (((uintptr_t)block & 4095) == 0)
        block = malloc(100);
    expect("free_aligned_sized: %p is not aligned to 4096, as the caller says", (void *)block);
    free_aligned_sized(hidden(block), 4096, 100);
    return 0;
}
