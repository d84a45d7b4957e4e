/* read_after_free.c - what was in a freed block is gone: it reads as zeros. */
#include "secure.h"

int main(void)
{
    static const size_t sizes[] = { 1, 16, 100, 1000, 5000, 30000 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        unsigned char *block = malloc(sizes[k]);
        memset(hidden(block), 0xa5, sizes[k]);
        free(block);
        for (size_t i = 0; i < sizes[k]; i++)
            if (((volatile unsigned char *)hidden(block))[i] != 0)
                return 0; /* announced nothing: a failure */
    }
    expect_fault(); /* a large one cannot be read at all */
    char *large = malloc(300000);
    memset(hidden(large), 1, 300000);
    free(large);
    return *(volatile char *)hidden(large);
}
