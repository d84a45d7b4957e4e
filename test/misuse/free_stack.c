/* free_stack.c - free of an address on the stack. */
#include "misuse.h"

int main(void)
{
    char bytes[64] = {0};
    expect_foreign("free", bytes);
    free(hidden(bytes));
    return 0;
}
