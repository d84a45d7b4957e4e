/* overrun_of_the_word.c - the block's own word, all of it, in a class above 1 KiB. */
#include "secure.h"

int main(void)
{
    warm_up(4000);
    char *block = malloc(4088);
    memset(at(block, 4088), 'A', 8);
    expect_overrun("free", block, malloc_usable_size(hidden(malloc(4088))) + 8, 4088);
    free(hidden(block));
    return 0;
}
