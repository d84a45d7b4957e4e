/* thread_key.c - the key that tells of a thread's end is made before main, and not where threads first allocate.
 *
 * musl before 1.2.4 does not hold the lock of its keys over a fork: a child that came while another thread made a key has it locked
 * for ever, and none of its own threads can end (stress/forks hung so, once in fifty runs of its first moments).
 *
 * Owns:    a few thread keys.
 * Threads: one.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>

/* The keys that the process still has. */
static int keys_left(void)
{
    enum { MOST = 4096 };
    pthread_key_t key[MOST];
    int count = 0;
    while (count < MOST && pthread_key_create(&key[count], NULL) == 0)
        count++;
    for (int i = 0; i < count; i++)
        pthread_key_delete(key[i]);
    return count;
}

static void *block(void *unused)
{
    (void)unused;
    free(malloc(100));
    return NULL;
}

static void the_first_block_makes_no_key(void)
{
    int before = keys_left();
    free(malloc(100));
    EXPECT_SAY(keys_left() == before, "%d keys, then %d", before, keys_left());
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, block, NULL) == 0);
    pthread_join(thread, NULL);
    EXPECT_SAY(keys_left() == before, "%d keys, then %d", before, keys_left());
}

int main(void)
{
    RUN(the_first_block_makes_no_key);
    return EXPECT_RESULT();
}
