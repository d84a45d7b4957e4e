/* sparing.c - frees what it never wants again (once), or wants a quarter of it again and again (breathing); prints its resident KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { COUNT = 20 << 12 };
static char *block[COUNT];
static volatile unsigned spin;
int main(int count, char **words)
{
    char line[128];
    long pages = 0, resident = 0;
    if (words[1][0] == 'w' && fork() != 0) /* a worker does it; who waits for it writes nothing */
        return wait(NULL), _exit(0), 0;
    for (int round = 0; round < 150; round++) {
        int part = words[1][0] == 'b' && round ? COUNT / 4 : COUNT; /* 20 MiB once; or 5 of them again and again */
        for (int i = 0; i < part; i++)
            memset(block[i] = malloc(256), 1, 256);
        for (int i = part; i-- > 0;)
            free(block[i]);
        if (words[1][0] != 'b')
            break;
    }
    for (clock_t until = clock() + CLOCKS_PER_SEC / 5; clock() < until;)
        spin++;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(line, sizeof line, file) || sscanf(line, "%ld %ld", &pages, &resident) != 2)
        return 1;
    printf("%ld\n", resident * 4);
    return count < 2;
}
