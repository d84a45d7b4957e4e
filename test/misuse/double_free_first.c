/* double_free_first.c - the first block of a program, of a class that is still rare, is freed twice. */
#include "misuse.h"

int main(void)
{
    void *block = malloc(200);
    size_t bytes = malloc_usable_size(block);
    free(hidden(block));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
