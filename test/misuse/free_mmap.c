/* free_mmap.c - free of memory from mmap. */
#include "misuse.h"

int main(void)
{
    free(malloc(10));
    char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect_foreign("free", pages);
    free(hidden(pages));
    return 0;
}
