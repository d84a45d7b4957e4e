/* usable_size_static.c - malloc_usable_size of a static object. */
#include "misuse.h"

int main(void)
{
    static _Alignas(64) char bytes[4096];
    expect_foreign("malloc_usable_size", bytes);
    hidden((void *)malloc_usable_size(hidden(bytes)));
    return 0;
}
