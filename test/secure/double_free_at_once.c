/* double_free_at_once.c - two threads free a block in the same moment: one of them finds it freed. */
#include "secure.h"

static void *_Atomic shared;
static _Atomic int ready;

static void *race(void *unused)
{
    void *last = NULL;
    free(hidden(malloc(100)));
    ready++;
    for (;;) {
        void *block = shared;
        if (block == last)
            continue;
        last = block;
        free(block);
    }
    return unused;
}

int main(void)
{
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, race, NULL) != 0)
            return 97;
    while (ready < 2)
        usleep(100);
    void *block = malloc(100);
    expect_double_free("free", block, 112);
    expect_double_free("free", block, 128); /* of a coarser class, the second or third of its size */
    shared = block;
    sleep(30);
    return 0;
}
