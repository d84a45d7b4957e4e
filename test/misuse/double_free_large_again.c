/* double_free_large_again.c - a large block is freed twice, when another one, that begins further back, lies in its place. */
#include "misuse.h"

int main(void)
{
    enum { SPAN = 1 << 16 };
    for (size_t size = 39000; size > 37000; size -= 8) {
        char *first = malloc(40900);
        free(hidden(first));
        char *second = malloc(size);
        if ((uintptr_t)first / SPAN == (uintptr_t)second / SPAN && first < second) {
            expect("free: %p is free already, or was never handed out by malloc: in its place a block of %zu bytes starts at %p", (void *)first,
                   malloc_usable_size(hidden(second)), (void *)second);
            free(hidden(first));
        }
    }
    return 0;
}
