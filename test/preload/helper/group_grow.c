/* group_grow.c - 24 MiB of free memory in holes, and then 92 MiB in use: more than 100 MiB only for who keeps the holes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
enum { HOLES = 8, MORE = 14 };

static char *filled(size_t bytes)
{
    char *block = malloc(bytes);
    if (!block)
        exit(3);
    memset(block, 1, bytes);
    return block;
}

int main(void)
{
    char *hole[HOLES], *wall[HOLES], *more[MORE];
    for (int i = 0; i < HOLES; i++) {
        hole[i] = filled(3 * MIB);
        wall[i] = filled(MIB);
    }
    for (int i = 0; i < HOLES; i++)
        free(hole[i]);
    for (int i = 0; i < MORE; i++)
        more[i] = filled(6 * MIB);
    printf("there %d\n", more[0][0] + wall[0][0]);
    return 0;
}
