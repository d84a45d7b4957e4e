/* control_sizes.c - sizes that callers may rightly state: of the request, up to what the block has. */
#include "misuse.h"

int main(void)
{
    for (size_t size = 1; size < 200000; size += size / 9 + 1)
        for (int i = 0; i < 100; i++) {
            void *block = malloc(size);
            free_sized(hidden(block), i % 2 ? size : size);
            struct hak_block least = hak_alloc_at_least(size);
            free_sized(hidden(least.ptr), i % 2 ? size : least.bytes);
            block = realloc(malloc(size), size + 1);
            free_sized(hidden(block), size + 1);
            block = realloc(malloc(size + 64), size);
            free_sized(hidden(block), size);
        }
    return 0;
}
