/* free_mmap_middle.c - free of an address in the middle of memory from mmap. */
#include "misuse.h"

int main(void)
{
    char *pages = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *middle = at(pages, 4097 * 16);
    expect_foreign("free", middle);
    free(middle);
    return 0;
}
