/* shortage_first_malloc.c - a thread's first block is to be had while others keep what they freed.
 *
 * Owns:   a child that execs itself under RLIMIT_AS.
 * Method: threads wait. Some have a heap already, as many as lie together; the last has none. The main thread takes all there is in blocks
 *         of 64 KiB and frees a few of the first ones, which it keeps for its next ones of that size: nothing else is free. A heap takes
 *         such a block, too. The last ones are mappings of their own, and would leave no room for the library's steps of 256 KiB.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <sys/resource.h>

enum { LIMIT = 128 << 20, BYTES = 64 << 10, MOST = LIMIT / BYTES, WITH_HEAP = 8, KEPT = 4 };
static void *block[MOST];
static pthread_barrier_t began, filled, asked;
static void *of_first[WITH_HEAP + 1];

static void *work(void *argument)
{
    void **result = (void **)argument;
    if (result != &of_first[WITH_HEAP])
        *result = malloc(16);
    pthread_barrier_wait(&began);
    pthread_barrier_wait(&filled);
    if (result == &of_first[WITH_HEAP])
        *result = malloc(16);
    pthread_barrier_wait(&asked); /* or it takes over a heap of one that ended */
    return NULL;
}

/* So many have a heap that the last thread's takes new memory: three lie in 64 KiB, main's among them. */
static int limited(size_t with_heap)
{
    pthread_t thread[WITH_HEAP + 1];
    pthread_attr_t attributes;
    size_t count = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&began, NULL, (unsigned)with_heap + 2);
    pthread_barrier_init(&filled, NULL, (unsigned)with_heap + 2);
    pthread_barrier_init(&asked, NULL, (unsigned)with_heap + 1);
    for (size_t i = 0; i <= with_heap; i++)
        REQUIRE(pthread_create(&thread[i], &attributes, work, &of_first[i < with_heap ? i : WITH_HEAP]) == 0);
    pthread_barrier_wait(&began);
    while (count < MOST && (block[count] = malloc(BYTES)) != NULL)
        count++;
    REQUIRE(count > 100 && count < MOST);
    for (size_t i = 0; i < KEPT; i++)
        free(block[i]);
    pthread_barrier_wait(&filled);
    for (size_t i = 0; i <= with_heap; i++)
        pthread_join(thread[i], NULL);
    EXPECT_SAY(of_first[WITH_HEAP] != NULL, "%zu threads with a heap", with_heap);
    return expect_failure_count != 0;
}

static void the_first_block_of_a_thread_is_to_be_had(char *program)
{
    static const char *const counts[] = {"2", "3", "4", "5"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            struct rlimit limit = {LIMIT, LIMIT};
            char *argv[] = {program, (char *)counts[i], NULL};
            setrlimit(RLIMIT_AS, &limit);
            execv("/proc/self/exe", argv);
            _exit(99);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s threads: status %#x", counts[i], (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        _exit(limited(strtoul(argv[1], NULL, 10)));
    the_first_block_of_a_thread_is_to_be_had(argv[0]);
    return expect_failure_count != 0;
}
