/* double_free_by_threads.c - a thread frees what another has freed, and no owner has collected: found at once. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    in_thread(thread_free_again, block);
    expect_double_free("free", block, 112);
    in_thread(thread_free_again, block);
    return 0;
}
