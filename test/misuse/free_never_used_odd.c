/* free_never_used_odd.c - free of memory of ours that was never handed out, not aligned. */
#include "misuse.h"

int main(void)
{
    struct hak_stats stats;
    void *block = malloc(100);
    hak_stats_get(&stats, sizeof stats);
    void *never = at(block, (long)(stats.reserved_bytes / 2) + 3);
    expect_never("free", never);
    free(never);
    return 0;
}
