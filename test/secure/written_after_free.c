/* written_after_free.c - one of many freed blocks of 100 bytes is written to, and handed out some time later. */
#include "secure.h"

int main(void)
{
    enum { COUNT = 2000, ROUNDS = 20 };
    static char *block[COUNT];
    hak_option_set("purge_delay_ms", "600000"); /* or its page may go back, and with it what was written */
    hak_option_set("free_max_mb", "1000");
    warm_up(100);
    for (int i = 0; i < COUNT; i++)
        block[i] = malloc(100);
    char *written = block[COUNT / 2 + 1];
    for (int i = 0; i < COUNT; i++)
        if (i % 7 != 0 || block[i] == written)
            free(block[i]); /* of each slab some stay, or it may end before the write */
    ((volatile char *)hidden(written))[9] = 1;
    expect_written_after("malloc", written, 112, 9);
    expect_written_after("free", written, 112, 9); /* where its thread's places are emptied */
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            block[i] = malloc(100);
        for (int i = 0; i < COUNT; i++)
            free(block[i]);
    }
    collect(100);
    return 0;
}
