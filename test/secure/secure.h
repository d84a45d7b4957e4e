/* secure.h - what the programs here share: as misuse.h, whose lines they announce, and what only this level finds. */
#ifndef HAK_TEST_SECURE_H
#define HAK_TEST_SECURE_H

#include "misuse/misuse.h"

/* What a block has beside what was asked for: `more` bytes and the word, of which the line tells the sum. */
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

#endif
