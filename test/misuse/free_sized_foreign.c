/* free_sized_foreign.c - free_sized of a static object. */
#include "misuse.h"

int main(void)
{
    static _Alignas(64) char bytes[64];
    expect_foreign("free_sized", bytes);
    free_sized(hidden(bytes), 64);
    return 0;
}
