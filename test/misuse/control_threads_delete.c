/* control_threads_delete.c - blocks of all sizes deleted by other threads, with their sizes and without: no false alarm, and each is free once. */
#include "misuse.h"

enum { BLOCKS = 3000, ROUNDS = 40 };
static size_t size_of(int i) { return i % 100 == 99 ? (size_t)i * 30 : i % 10 == 9 ? (size_t)i * 11 : (size_t)(i % 60) * 17; }

static void *delete_all(void *argument)
{
    void **blocks = argument;
    free(hidden(malloc(80)));
    for (int i = 0; i < BLOCKS; i++)
        switch (i % 4) {
        case 0: delete_plain(hidden(blocks[i])); break;
        case 1: delete_sized(hidden(blocks[i]), size_of(i)); break;
        case 2: free_sized(hidden(blocks[i]), size_of(i)); break;
        default: delete_aligned(hidden(blocks[i]), 16); break;
        }
    return NULL;
}

int main(void)
{
    static void *blocks[BLOCKS];
    hak_heap_t *heap = hak_heap_new(0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = round % 4 == 3 ? hak_heap_malloc(heap, size_of(i)) : malloc(size_of(i));
        in_thread(delete_all, blocks);
    }
    hak_collect();
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    if (stats.live_bytes > 100000) {
        fprintf(stderr, "%llu bytes are live\n", (unsigned long long)stats.live_bytes);
        return 1;
    }
    return 0;
}
