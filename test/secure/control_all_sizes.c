/* control_all_sizes.c - a right program: all its bytes are its own, to the last, in all sizes, alignments and threads. */
#include "secure.h"

enum { SLOTS = 600, ROUNDS = 60000 };

static void *work(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed * 2654435761u + 1;
    static _Thread_local struct { unsigned char *block; size_t bytes; } slot[SLOTS];
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525 + 1013904223;
        int k = (int)(random >> 20) % SLOTS;
        size_t bytes = (random >> 8) % (i % 64 == 0 ? 200000 : i % 8 == 0 ? 30000 : 600);
        for (size_t j = 0; j < slot[k].bytes; j += 97)
            if (slot[k].block[j] != (unsigned char)k)
                _exit(3);
        switch (random >> 5 & 3) {
        case 0:
            slot[k].block = realloc(slot[k].block, bytes + 1);
            bytes++;
            break;
        case 1:
            free(slot[k].block);
            slot[k].block = aligned_alloc((size_t)16 << (random >> 14 & 7), bytes);
            break;
        case 2:
            free(slot[k].block);
            slot[k].block = calloc(1, bytes);
            for (size_t j = 0; j < bytes; j++)
                if (slot[k].block[j])
                    _exit(4);
            break;
        default:
            free(slot[k].block);
            slot[k].block = malloc(bytes);
        }
        if (slot[k].block == NULL)
            _exit(5);
        if (malloc_usable_size(slot[k].block) < bytes)
            _exit(6);
        memset(slot[k].block, k, slot[k].bytes = malloc_usable_size(slot[k].block));
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[4];
    work((void *)9);
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)i) != 0)
            return 97;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    hak_collect();
    return 0;
}
