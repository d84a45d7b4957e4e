/* free_brk.c - free of memory from sbrk. */
#include "misuse.h"

int main(void)
{
    void *memory = sbrk(65536);
    expect_foreign("free", memory);
    free(hidden(memory));
    return 0;
}
