/* free_in_front_large.c - free of an address in the page of a large block's head, in front of it. */
#include "misuse.h"

int main(void)
{
    enum { COUNT = 200, SIZE = 40100, SPAN = 1 << 16 };
    for (int i = 0; i < COUNT; i++) {
        char *block = malloc(SIZE);
        if ((uintptr_t)block % SPAN == 0)
            continue;
        void *address = at(block, -64);
        expect_never("free", address);
        free(address);
    }
    return 0;
}
