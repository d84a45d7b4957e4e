/* double_free_by_threads_without_heaps.c - of two threads that never allocate. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    in_thread(thread_free, block);
    expect_double_free("free", block, 112);
    in_thread(thread_free, block);
    return 0;
}
