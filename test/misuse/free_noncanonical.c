/* free_noncanonical.c - free of a block whose upper address bits were damaged. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(100);
    void *damaged = hidden((void *)((uintptr_t)block ^ 0x0040000000000000u));
    expect_foreign("free", damaged);
    free(damaged);
    return 0;
}
