/* control_threads.c - blocks freed by other threads, and reused, many times: no false alarm. */
#include "misuse.h"

static void *free_all(void *argument)
{
    void **blocks = argument;
    for (int i = 0; i < 5000; i++)
        free(hidden(blocks[i]));
    return NULL;
}

int main(void)
{
    static void *blocks[5000];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 5000; i++)
            blocks[i] = malloc((size_t)(i % 60) * 17);
        in_thread(free_all, blocks);
    }
    return 0;
}
