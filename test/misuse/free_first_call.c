/* free_first_call.c - the first call of a program is free of a static object. */
#include "misuse.h"

int main(void)
{
    static _Alignas(64) char bytes[4096];
    expect_foreign("free", bytes);
    free(hidden(bytes));
    return 0;
}
