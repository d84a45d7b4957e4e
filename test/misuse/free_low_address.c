/* free_low_address.c - free of a small number. */
#include "misuse.h"

int main(void)
{
    void *low = hidden((void *)0x10);
    expect_foreign("free", low);
    free(low);
    return 0;
}
