/* breathe.c - a program with threads that allocates in all sizes, falls, and rises again; checks contents.
 *
 * Usage: breathe [ROUNDS [THREADS [PEAK_MB]]]. Says "breathed" at its end.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rounds = 6;
static size_t peak_bytes = 8u << 20;

static void *breathe(void *argument)
{
    uint64_t random = (uintptr_t)argument * 977 + 1;
    size_t slot_count = peak_bytes / 256;
    struct held { unsigned char *block; size_t bytes; } *held = calloc(slot_count, sizeof *held);
    if (held == NULL)
        return (void *)1;
    for (int round = 0; round < rounds; round++) {
        size_t bytes = 0;
        for (size_t i = 0; i < slot_count && bytes < peak_bytes; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t size = (random >> 33) % (i % 500 == 0 ? 200000 : i % 20 == 0 ? 8000 : 600) + 1;
            if (held[i].block == NULL) {
                held[i].block = i % 3 == 0 ? calloc(1, size) : malloc(size);
                if (held[i].block == NULL)
                    break;
                held[i].bytes = size;
                memset(held[i].block, (int)(i & 255), size);
            }
            bytes += held[i].bytes;
        }
        for (size_t i = 0; i < slot_count; i++)
            if (held[i].block != NULL && i % 50 != 0) {
                if (held[i].block[0] != (i & 255) || held[i].block[held[i].bytes - 1] != (i & 255))
                    return (void *)2;
                free(held[i].block);
                held[i].block = NULL;
            }
        malloc_trim(0);
        for (size_t i = 0; i < slot_count; i += 50)
            if (held[i].block != NULL && held[i].block[held[i].bytes / 2] != (i & 255))
                return (void *)3;
    }
    for (size_t i = 0; i < slot_count; i++)
        free(held[i].block);
    free(held);
    return NULL;
}

int main(int argument_count, char **arguments)
{
    int thread_count = argument_count > 2 ? atoi(arguments[2]) : 2;
    pthread_t threads[64];
    pthread_attr_t attributes;
    void *result, *worst = NULL;
    if (argument_count > 1)
        rounds = atoi(arguments[1]);
    if (argument_count > 3)
        peak_bytes = (size_t)atoi(arguments[3]) << 20;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    for (int i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], &attributes, breathe, (void *)(uintptr_t)(i + 1)) != 0)
            return 4;
    for (int i = 0; i < thread_count; i++) {
        pthread_join(threads[i], &result);
        if (result != NULL)
            worst = result;
    }
    if (worst != NULL)
        return (int)(uintptr_t)worst;
    puts("breathed");
    return 0;
}
