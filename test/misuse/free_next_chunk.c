/* free_next_chunk.c - free of an address in our memory, in a chunk that nobody took yet. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(100);
    void *never = at(block, 512l << 20);
    expect_never("free", never);
    expect_foreign("free", never); /* where the window has not grown so far */
    free(never);
    return 0;
}
