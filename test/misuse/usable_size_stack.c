/* usable_size_stack.c - malloc_usable_size of an address on the stack. */
#include "misuse.h"

int main(void)
{
    char bytes[64] = {0};
    expect_foreign("malloc_usable_size", bytes);
    hidden((void *)malloc_usable_size(hidden(bytes)));
    return 0;
}
