/* turns.c - threads that take turns, as under an interpreter's lock: whoever finds much garbage frees what all of them have allocated.
 *
 * Owns:    48 threads, of which one runs at a time.
 * Why:     what others freed of a thread that waits was free memory that nobody counted: two to eight times what others hold.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <semaphore.h>

enum { THREADS = 48, TURNS = 600, BLOCKS = 20000, GARBAGE_BYTES = 12 << 20, HELD_MAX = 200000 };
static sem_t turn[THREADS];
static char **held;
static size_t held_count, held_bytes;
static long most_kib;
static int turns_left = TURNS;
static struct random_state random_turn = { 12345 };

static void *take_turns(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    for (;;) {
        sem_wait(&turn[number]);
        if (turns_left-- <= 0)
            break;
        size_t count = random_below(&random_turn, BLOCKS);
        for (size_t k = 0; k < count; k++) {
            size_t bytes = 24 + k % 500;
            char *block = (char *)malloc(bytes);
            REQUIRE(block != NULL && held_count < HELD_MAX);
            memset(block, (int)(k & 127), bytes);
            held[held_count++] = block;
            held_bytes += bytes;
            if (held_bytes < GARBAGE_BYTES)
                continue;
            if (resident_kib() > most_kib)
                most_kib = resident_kib();
            while (held_count > 0)
                free(held[--held_count]);
            held_bytes = 0;
        }
        sem_post(&turn[random_below(&random_turn, THREADS)]);
    }
    for (int i = 0; i < THREADS; i++)
        sem_post(&turn[i]);
    return NULL;
}

static void what_others_freed_of_who_waits_goes_back(void)
{
    pthread_t threads[THREADS];
    held = (char **)malloc(HELD_MAX * sizeof *held);
    memset(held, 1, HELD_MAX * sizeof *held);
    long before = resident_kib();
    for (size_t i = 0; i < THREADS; i++)
        sem_init(&turn[i], 0, i == 0);
    for (size_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, take_turns, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    EXPECT_SAY(!resident_is_known() || most_kib - before < 220000, "%ld KiB at the most, %d are live", most_kib - before, GARBAGE_BYTES / 1024);
    while (held_count > 0)
        free(held[--held_count]);
    free(held);
}

int main(void)
{
    RUN(what_others_freed_of_who_waits_goes_back);
    return EXPECT_RESULT();
}
