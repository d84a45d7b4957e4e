/* free_in_thread_stack.c - a thread frees an address on its stack, its first call of ours. */
#include "misuse.h"

static void *free_own_stack(void *unused)
{
    char bytes[64] = {0};
    (void)unused;
    expect_foreign("free", bytes);
    free(hidden(bytes));
    return NULL;
}

int main(void)
{
    in_thread(free_own_stack, NULL);
    return 0;
}
