/* hak_usable_size_foreign.c - hak_usable_size of a static object. */
#include "misuse.h"

int main(void)
{
    static _Alignas(64) char bytes[64];
    expect_foreign("hak_usable_size", bytes);
    hidden((void *)hak_usable_size(hidden(bytes)));
    return 0;
}
