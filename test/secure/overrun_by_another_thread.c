/* overrun_by_another_thread.c - written by one thread, freed by another. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    char *block = malloc(100);
    *(char *)at(block, 100) = 1;
    expect_overrun("free", block, 112, 100);
    in_thread(thread_free_again, block);
    return 0;
}
