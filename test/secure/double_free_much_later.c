/* double_free_much_later.c - it has left its place, and lies free in its slab. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    free(hidden(block));
    hak_collect();
    expect_double_free("free", block, 112);
    free(hidden(block));
    return 0;
}
