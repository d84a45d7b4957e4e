/* realloc_mmap.c - realloc of memory from mmap. */
#include "misuse.h"

int main(void)
{
    free(malloc(10));
    char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect_foreign("realloc", pages);
    *(volatile char *)hidden(realloc(hidden(pages), 5000)) = 1;
    return 0;
}
