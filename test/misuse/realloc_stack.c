/* realloc_stack.c - realloc of an address on the stack. */
#include "misuse.h"

int main(void)
{
    char bytes[64] = {0};
    expect_foreign("realloc", bytes);
    *(volatile char *)hidden(realloc(hidden(bytes), 5000)) = 1;
    return 0;
}
