/* filling.c - fills so many MiB of each of five sizes; prints page faults, peak and huge pages in KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
static const size_t sizes[] = { 48, 112, 240, 640, 5000 };
static volatile unsigned spin;
int main(int count, char **words)
{
    struct rusage usage;
    char line[128];
    long huge = 0;
    size_t each = (size_t)atoi(words[1]) << 20;
    for (int i = 0; i < 5; i++)
        for (size_t bytes = 0; bytes < each; bytes += sizes[i])
            memset(malloc(sizes[i]), 1, sizes[i]);
    getrusage(RUSAGE_SELF, &usage);
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "AnonHugePages: %ld", &huge);
    for (clock_t until = clock() + CLOCKS_PER_SEC / 20; clock() < until;)
        spin++;
    printf("%ld %ld %ld\n", usage.ru_minflt, usage.ru_maxrss, huge);
    return count < 2;
}
