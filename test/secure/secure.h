/* secure.h - what the programs here share: as misuse.h, whose lines they announce, and what only this level finds. */
#ifndef HAK_TEST_SECURE_H
#define HAK_TEST_SECURE_H

#include "misuse/misuse.h"

__attribute__((unused)) static void expect_overrun(const char *function, const void *block, size_t block_bytes, size_t byte)
{
    expect("%s: %p is a block of %zu bytes that was written to behind its end, at byte %zu", function, block, block_bytes, byte);
}

/* The class of a size is known to be its own once it is asked for often: warm_up(). */
__attribute__((unused)) static void expect_written_after(const char *function, const void *block, size_t block_bytes, size_t byte)
{
    expect("%s: %p is a freed block of %zu bytes that was written to after its free, at byte %zu", function, block, block_bytes, byte);
}

__attribute__((unused)) static void expect_fault(void)
{
    static const char text[] = "expect a fault\n";
    ssize_t ignored = write(1, text, sizeof text - 1);
    (void)ignored;
}

/* Of many blocks most are freed, some of each slab stay, or it may end before the write; one is written to, and all are asked for again. */
__attribute__((unused)) static int write_after_free(size_t bytes, size_t block_bytes, size_t byte)
{
    enum { COUNT_MOST = 2000, ROUNDS = 20 };
    static char *block[COUNT_MOST];
    int count = bytes < 1000 ? COUNT_MOST : COUNT_MOST / 10;
    hak_option_set("purge_delay_ms", "600000"); /* or its page may go back, and with it what was written */
    hak_option_set("free_max_mb", "1000");
    warm_up(bytes);
    for (int i = 0; i < count; i++)
        block[i] = malloc(bytes);
    char *written = block[count / 2 + 1];
    for (int i = 0; i < count; i++)
        if (i % 7 != 0 || block[i] == written)
            free(block[i]);
    ((volatile char *)hidden(written))[byte] = 1;
    expect_written_after("malloc", written, block_bytes, byte);
    expect_written_after("free", written, block_bytes, byte); /* where its thread's places are emptied */
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++)
            block[i] = malloc(bytes);
        for (int i = 0; i < count; i++)
            free(block[i]);
    }
    collect(bytes);
    return 0;
}

#endif
