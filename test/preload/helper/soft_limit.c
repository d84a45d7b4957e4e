/* soft_limit.c - a program that breathes: each 100 ms it rises from 20 to 64 MiB in blocks of up to 2 KiB, and falls.
 *
 * Says what was resident at the lows on average, and at lows and peaks, in KiB, and the milliseconds of its processor time.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 30, BLOCKS = 1 << 16, KEPT = 10 }; /* one block of so many lives */
static char *blocks[BLOCKS];

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        exit(2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void nap(void)
{
    struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
}

int main(void)
{
    uint64_t random = 1;
    long lows = 0, all = 0;
    char *always = (char *)malloc(20 << 20);
    if (always == NULL)
        return 1;
    memset(always, 1, 20 << 20);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t size = (random >> 33) % 1340 + 1;
            if (blocks[i] == NULL && (blocks[i] = (char *)malloc(size)) == NULL)
                return 1;
            blocks[i][0] = 1;
        }
        all += resident_kib();
        nap();
        for (int i = 0; i < BLOCKS; i++)
            if (i < BLOCKS - BLOCKS / KEPT || round % 2) {
                free(blocks[i]);
                blocks[i] = NULL;
            }
        nap();
        long low = resident_kib();
        lows += low;
        all += low;
    }
    printf("%ld %ld %ld\n", lows / ROUNDS, all / (2 * ROUNDS), (long)(clock() / (CLOCKS_PER_SEC / 1000)));
    free(always);
    return 0;
}
