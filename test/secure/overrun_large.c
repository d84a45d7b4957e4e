/* overrun_large.c - behind the pages of a large block nobody may write. */
#include "secure.h"

int main(void)
{
    char *block = malloc(100000);
    size_t bytes = malloc_usable_size(hidden(block));
    memset(hidden(block), 1, bytes);
    expect_fault();
    *(volatile char *)at(block, (long)bytes) = 1;
    return 0;
}
