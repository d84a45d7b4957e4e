/* realloc_never_used.c - realloc of memory of ours, far from anything that was handed out. */
#include "misuse.h"

int main(void)
{
    struct hak_stats stats;
    void *block = malloc(100);
    hak_stats_get(&stats, sizeof stats);
    void *never = at(block, (long)(stats.reserved_bytes / 2));
    expect_never("realloc", never);
    *(volatile char *)hidden(realloc(never, 5000)) = 1;
    return 0;
}
