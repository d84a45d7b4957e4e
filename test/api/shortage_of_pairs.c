/* shortage_of_pairs.c - when memory is short, blocks that a thread frees are blocks that it gets again, of every size.
 *
 * Owns:   children that exec themselves under RLIMIT_AS.
 * Method: in the third thread sizes above 4 KiB are served by the next coarser class until they are asked for more often. A thread takes
 *         a size until there is NULL, so that it is a class of its own by then, frees some of its first blocks, and takes them again.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <sys/resource.h>

enum { MOST = 1 << 17, FIRST = 64, LIMIT = 300 << 20 };
static void *block[MOST];
static size_t bytes;
static pthread_barrier_t began;

static void *wait_for_ever(void *argument)
{
    free(malloc(16));
    pthread_barrier_wait(&began);
    for (;;)
        pause();
    return argument;
}

static void *take_all(void *argument)
{
    size_t count = 0, freed = 0, again = 0;
    while (count < MOST && (block[count] = malloc(bytes)) != NULL)
        count++;
    REQUIRE(count > 2 * FIRST && count < MOST);
    for (size_t i = 0; i < FIRST; i += 2, freed++)
        free(block[i]);
    while (again < freed && malloc(bytes) != NULL)
        again++;
    EXPECT_SAY(again == freed, "%zu bytes: %zu of %zu", bytes, again, freed);
    /* and much of it, from slabs that nobody looked at for long */
    size_t half = 0, half_again = 0;
    for (size_t i = FIRST; i < count; i += 2, half++)
        free(block[i]);
    while (half_again < half && malloc(bytes) != NULL)
        half_again++;
    EXPECT_SAY(half_again == half, "%zu bytes: %zu of %zu", bytes, half_again, half);
    return argument;
}

static int limited(void)
{
    pthread_t idle, taker;
    free(malloc(16));
    pthread_barrier_init(&began, NULL, 2);
    REQUIRE(pthread_create(&idle, NULL, wait_for_ever, NULL) == 0);
    pthread_barrier_wait(&began);
    REQUIRE(pthread_create(&taker, NULL, take_all, NULL) == 0);
    pthread_join(taker, NULL);
    return expect_failure_count != 0;
}

static void what_was_freed_is_to_be_had_again(char *program)
{
    static const char *const sizes[] = {"3000", "4500", "5100", "8500", "18000", "20480", "32768"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            struct rlimit limit = {LIMIT, LIMIT};
            char *argv[] = {program, (char *)sizes[i], NULL};
            setrlimit(RLIMIT_AS, &limit);
            execv("/proc/self/exe", argv);
            _exit(99);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s bytes: status %#x", sizes[i], (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        bytes = strtoul(argv[1], NULL, 10);
        _exit(limited());
    }
    what_was_freed_is_to_be_had_again(argv[0]);
    return expect_failure_count != 0;
}
