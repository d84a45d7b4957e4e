/* shortage_of_ended.c - when memory is short, what is free in slabs that ended threads left serves whoever asks, however little it is in each.
 *
 * Owns:   a child that execs itself under a hard limit.
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>

enum { MOST = 1 << 16, THREADS = 2, BYTES = 1000 };
static void *blocks[THREADS][MOST];
static int count[THREADS];

/* Half of the limit each, so that the second one, too, has slabs of its own. */
static void *fills(void *argument)
{
    int t = (int)(intptr_t)argument;
    while (count[t] < 4500 && (blocks[t][count[t]] = malloc(BYTES)) != NULL)
        count[t]++;
    return NULL;
}

static int limited(void)
{
    pthread_t threads[THREADS];
    int freed = 0, got = 0;
    for (int t = 0; t < THREADS; t++) /* one after the other would have the first one's heap */
        REQUIRE(pthread_create(&threads[t], NULL, fills, (void *)(intptr_t)t) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    while (count[0] < MOST && (blocks[0][count[0]] = malloc(BYTES)) != NULL)
        count[0]++;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < count[t]; i += 11, freed++)
            free(blocks[t][i]);
    while (got < freed && malloc(BYTES) != NULL)
        got++;
    EXPECT_SAY(got + freed / 20 >= freed && freed > 500, "%d of %d", got, freed);
    return EXPECT_RESULT();
}

static void what_is_free_is_to_be_had(char *program)
{
    char *argv[] = {program, (char *)"limited", NULL};
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        setenv("HAKMEM_LIMIT_HARD_MB", "12", 1);
        execv("/proc/self/exe", argv);
        _exit(99);
    }
    int status = child_wait(child, 60);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return limited();
    what_is_free_is_to_be_had(argv[0]);
    return EXPECT_RESULT();
}
