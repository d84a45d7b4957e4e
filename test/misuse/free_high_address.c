/* free_high_address.c - free of an address that no program has. */
#include "misuse.h"

int main(void)
{
    void *high = hidden((void *)(uintptr_t)0xfffffffffffffff0u);
    expect_foreign("free", high);
    free(high);
    return 0;
}
