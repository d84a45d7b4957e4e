/* control_next_of_an_ended_thread.c - a thread ends when one block is left in its word of a class, where many others became free meanwhile: the next
 * thread's first block is any of these, not that one. */
#include "secure.h"

enum { BYTES = 40, BLOCK = 48, MOST = 4096, ROUNDS = 200, GRANULE = 65536 };

static uintptr_t left_over, block[MOST];
static int count, is_left_over, is_of_word;

static uintptr_t word_of(uintptr_t address)
{
    uintptr_t slab = address & ~(uintptr_t)(GRANULE - 1);
    return slab + (address - slab) / BLOCK / 64 * 64 * BLOCK;
}

/* Takes all but one of some word, and frees forty of them. */
static void *first(void *unused)
{
    (void)unused;
    left_over = 0;
    for (count = 0; count < MOST; count++) {
        block[count] = (uintptr_t)malloc(BYTES);
        uintptr_t word = word_of(block[count]);
        uint64_t have = 0;
        for (int i = 0; i <= count; i++)
            if (word_of(block[i]) == word)
                have |= (uint64_t)1 << (block[i] - word) / BLOCK;
        if (count < 200 || __builtin_popcountll(have) != 63)
            continue;
        left_over = word + (unsigned)__builtin_ctzll(~have) * BLOCK;
        for (int i = count, freed = 0; i >= 0 && freed < 40; i--)
            if (word_of(block[i]) == word) {
                free((void *)block[i]);
                block[i] = 0;
                freed++;
            }
        for (int i = 0; i < 5000; i++) /* they have waited, and are back */
            free(malloc(200));
        return NULL;
    }
    return NULL;
}

static void *second(void *unused)
{
    (void)unused;
    uintptr_t next = (uintptr_t)malloc(BYTES);
    is_left_over += next == left_over;
    is_of_word += word_of(next) == word_of(left_over);
    free((void *)next);
    for (int i = 0; i <= count && i < MOST; i++)
        if (block[i] != 0) {
            free((void *)block[i]);
            block[i] = 0;
        }
    return NULL;
}

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, first, NULL);
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, second, NULL);
        pthread_join(thread, NULL);
    }
    /* one in forty of them, and nine in ten before */
    if (is_of_word > 20 && is_left_over * 3 > is_of_word)
        return 1;
    return is_of_word > 0 ? 0 : 2;
}
