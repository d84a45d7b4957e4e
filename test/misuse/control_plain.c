/* control_plain.c - a correct program of every kind of call: silence, and exit 0. */
#include "misuse.h"

int main(void)
{
    for (size_t size = 0; size < 3000000; size += size / 5 + 1) {
        void *block = malloc(size);
        block = realloc(block, size * 2 + 1);
        free(hidden(block));
        free(hidden(calloc(2, size)));
        free(hidden(aligned_alloc(64, size)));
        free_sized(hidden(malloc(size)), size);
        free_aligned_sized(hidden(aligned_alloc(256, size)), 256, size);
        delete_sized(hidden(malloc(size)), size);
        delete_plain(hidden(malloc(size)));
        delete_sized_aligned(hidden(aligned_alloc(4096, size)), size, 4096);
        hak_free_at(hidden(hak_alloc_at(size, HAK_SITE)), 0);
    }
    free(NULL);
    free_sized(NULL, 10);
    free_aligned_sized(NULL, 64, 10);
    delete_sized(NULL, 10);
    hak_free_at(NULL, HAK_SITE);
    return 0;
}
