/* usable_size_mmap.c - malloc_usable_size of memory from mmap. */
#include "misuse.h"

int main(void)
{
    free(malloc(10));
    char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect_foreign("malloc_usable_size", pages);
    hidden((void *)malloc_usable_size(hidden(pages)));
    return 0;
}
