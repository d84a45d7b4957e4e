/* overrun_of_the_slab.c - who reads on behind a block comes to the slab's end, and no further. */
#include "secure.h"

int main(void)
{
    char *block = malloc(100);
    volatile char sum = 0;
    expect_fault();
    for (long i = 0; i < 4 << 20; i++)
        sum += *(volatile char *)at(block, i);
    return sum & 0;
}
