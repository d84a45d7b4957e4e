/* free_function.c - free of a function. */
#include "misuse.h"

int main(void)
{
    void *function = hidden((void *)(uintptr_t)main);
    expect_foreign("free", function);
    free(function);
    return 0;
}
