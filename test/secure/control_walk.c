/* control_walk.c - a walk's function frees blocks, and others allocate and free meanwhile: slabs end, and their pages are closed. */
#include "secure.h"

#include <time.h>

enum { BLOCKS = 4000, THREADS = 2, SECONDS = 2 };
static char *block[BLOCKS];
static _Atomic int is_over;

static void *churn(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed * 77 + 5;
    static _Thread_local void *mine[200];
    while (!is_over) {
        random = random * 1664525 + 1013904223;
        int k = (int)(random >> 20) % 200;
        free(mine[k]);
        mine[k] = malloc(random % 16 == 0 ? 100000 : random >> 8 & 4095);
    }
    return NULL;
}

static int count_freeing(const struct hak_held *held, void *context)
{
    int *seen = context;
    if (held->bytes == 0 || held->bytes > (size_t)1 << 30)
        _exit(9);
    if (++*seen % 50 == 0)
        for (int i = 0; i < BLOCKS; i++) {
            free(block[i]);
            block[i] = i % 3 ? NULL : malloc((size_t)(i % 7) * 300 + 1);
        }
    return 0;
}

int main(void)
{
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, churn, (void *)i) != 0)
            return 97;
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end;) {
        int seen = 0;
        for (int i = 0; i < BLOCKS; i++)
            if (block[i] == NULL)
                block[i] = malloc(900);
        hak_walk(count_freeing, &seen);
        if (seen == 0)
            return 96;
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
