/* double_free_while_it_waits.c - others were freed in between, and it was not handed out yet. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100), *other[10];
    for (int i = 0; i < 10; i++)
        other[i] = malloc(100);
    free(hidden(block));
    for (int i = 0; i < 10; i++)
        free(other[i]);
    expect_double_free("free", block, 112);
    free(hidden(block));
    return 0;
}
