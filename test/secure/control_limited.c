/* control_limited.c - under limits on data and on addresses, freed large blocks are there again, round after round. */
#include "secure.h"

#include <sys/resource.h>
#include <sys/wait.h>

static int rounds_run(void)
{
    enum { ROUNDS = 4, MOST = 20000 };
    static void *block[MOST];
    int first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int count = 0;
        while (count < MOST && (block[count] = malloc(100000)) != NULL)
            memset(block[count++], 1, 100000);
        for (int i = 0; i < count; i++)
            free(block[i]);
        if (round == 0)
            first = count;
        if (count < 100 || count < first / 10 * 9)
            return fprintf(stderr, "%d blocks, after %d\n", count, first), 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return rounds_run();
    for (int k = 0; k < 2; k++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {k ? 400u << 20 : 200u << 20, k ? 400u << 20 : 200u << 20};
            setrlimit(k ? RLIMIT_AS : RLIMIT_DATA, &limit);
            execl("/proc/self/exe", argv[0], "limited", (char *)NULL);
            _exit(95);
        }
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 1;
    }
    return 0;
}
