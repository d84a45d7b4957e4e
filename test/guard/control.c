/* control.c - all that is right stays right: sizes, alignment, contents, threads, names of free. */
#include "guard.h"

int main(void)
{
    static char *kept[64];
    unsigned dice = 7;
    for (int i = 0; i < 20000; i++) {
        dice = dice * 1103515245u + 12345u;
        unsigned k = dice >> 16 & 63;
        size_t bytes = dice >> 8 & 0x7fff, align = (size_t)16 << (dice >> 24 & 7);
        if (dice & 1) bytes &= 0xff;
        else if (i % 50 == 0) bytes *= 16; /* up to 512 KiB */
        if (kept[k] && (unsigned char)kept[k][0] != k + 1) return 90;
        if (dice & 2 && kept[k]) {
            kept[k] = realloc(kept[k], bytes + 1);
            if ((unsigned char)kept[k][0] != k + 1) return 91;
        } else {
            if (dice & 4) free(kept[k]);
            else if (kept[k]) delete_plain(kept[k]);
            kept[k] = dice & 8 ? memalign(align, bytes + 1) : malloc(bytes + 1);
            if (dice & 8 && (uintptr_t)kept[k] % align) return 92;
        }
        if (malloc_usable_size(kept[k]) < bytes + 1) return 93;
        memset(kept[k], (int)k + 1, malloc_usable_size(kept[k]));
    }
    for (int i = 0; i < 200; i++) {
        char *large = calloc(1000, 100 + (size_t)i);
        for (size_t at = 0; at < 100000; at += 999)
            if (large[at]) return 88;
        memset(large, 1, 100000);
        large = realloc(large, 200000);
        if (large[99999] != 1) return 87;
        free_sized(large, 200000);
        delete_sized(malloc(50000), 50000);
        void *zero = malloc(0);
        memset(zero, 1, malloc_usable_size(zero));
        free(zero);
        free_sized(malloc(100), 100);
        free_aligned_sized(aligned_alloc(64, 100), 64, 100);
        delete_sized(malloc(0), 0);
        struct hak_block more = hak_alloc_at_least(77);
        memset(more.ptr, 1, more.bytes);
        free(more.ptr);
        if (hak_expand(malloc(60), 1000) != 0) return 89;
    }
    for (int i = 0; i < 64; i++) in_thread(thread_free, kept[i]);
    if (hakmem_published.guarded < 1000 || hakmem_published.guard_found) return 94;
    announce("ends", "0");
    announce("silent", "yes");
    return 0;
}
