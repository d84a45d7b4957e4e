/* realloc_static.c - realloc of a static object. */
#include "misuse.h"

int main(void)
{
    static _Alignas(64) char bytes[4096];
    expect_foreign("realloc", bytes);
    *(volatile char *)hidden(realloc(hidden(bytes), 5000)) = 1;
    return 0;
}
