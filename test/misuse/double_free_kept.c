/* double_free_kept.c - a block above 1 KiB that is kept for the next malloc is freed again, after others of its size. */
#include "misuse.h"

int main(void)
{
    warm_up(4000);
    void *block = malloc(4000), *other = malloc(4000), *third = malloc(4000);
    size_t bytes = malloc_usable_size(block);
    free(hidden(other));
    free(hidden(block));
    free(hidden(third));
    expect_double_free("free", block, bytes);
    free(hidden(block));
    return 0;
}
