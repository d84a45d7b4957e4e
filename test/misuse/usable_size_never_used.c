/* usable_size_never_used.c - malloc_usable_size of memory of ours, far from anything that was handed out. */
#include "misuse.h"

int main(void)
{
    struct hak_stats stats;
    void *block = malloc(100);
    hak_stats_get(&stats, sizeof stats);
    void *never = at(block, (long)(stats.reserved_bytes / 2));
    expect_never("malloc_usable_size", never);
    hidden((void *)malloc_usable_size(never));
    return 0;
}
