/* free_interior_of_pool.c - an address inside the block behind the last one of a pool, taken for it but not handed out. */
#include "pool.h"

int main(void)
{
    pool_block();
    char *block = pool_long[POOL_LONG - 1], *before = pool_long[POOL_LONG - 2];
    void *next = at(block, block - before);
    free(hidden(block)); /* the slab's first, so that nothing else is wrong */
    expect("free: %p is inside a block of 208 bytes that starts at %p", at(next, 8), next);
    free(at(next, 8));
    return 0;
}
