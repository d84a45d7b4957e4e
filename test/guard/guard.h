/* guard.h - what the guard programs share: a block that is guarded, deeds in functions of their own, what is expected.
 *
 * Method: a program announces on standard output the first line of the report ("expect: "), how it ends ("ends: SEGV, ABRT or
 *         a status") and functions that must be found in a stack ("stack read: touch_read"), then does the wrong thing.
 *         run.py sets HAKMEM_GUARD=1 and HAKMEM_SAMPLE_BYTES=64, so that most blocks are guarded.
 */
#ifndef HAK_TEST_GUARD_H
#define HAK_TEST_GUARD_H

#include "../misuse/misuse.h"
#include "../../src/watch/published.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>

#ifdef __clang__
#define NOIPA __attribute__((noinline, unused))
#else
#define NOIPA __attribute__((noipa, unused))
#endif

enum { PAGE = 4096 };

static const struct hak_guard_row *guard_row(const void *block)
{
    const struct hak_guard_row *rows = (const struct hak_guard_row *)(uintptr_t)hakmem_published.guards.address;
    for (uint64_t i = 0; i < hakmem_published.guards.used; i++)
        if (rows[i].block == (uintptr_t)block && rows[i].state == HAK_GUARD_LIVE) return &rows[i];
    return NULL;
}

NOIPA static void *block_make(size_t align, size_t bytes)
{
    void *block = align <= 16 ? malloc(bytes) : memalign(align, bytes);
    __asm__ volatile("" : "+r"(block));
    return block;
}
NOIPA static void block_drop(void *block)
{
    free(block);
    __asm__ volatile("" ::: "memory");
}
NOIPA static void touch_read(const volatile char *at)
{
    (void)*at;
    __asm__ volatile("" ::: "memory");
}
NOIPA static void touch_write(volatile char *at)
{
    *at = 1;
    __asm__ volatile("" ::: "memory");
}

enum side { LEFT, RIGHT, ANY };

/* A guarded block that begins at a page's start, or ends as near to a page's end as its alignment allows. The others stay. */
__attribute__((unused)) static char *guarded(size_t align, size_t bytes, enum side side)
{
    for (int i = 0; i < 400; i++) {
        char *block = (char *)block_make(align, bytes);
        if (guard_row(block)) {
            size_t used = bytes ? (bytes + (align > 16 ? align : 16) - 1) / (align > 16 ? align : 16) * (align > 16 ? align : 16) : 16;
            bool is_left = (uintptr_t)block % PAGE == 0, is_right = ((uintptr_t)block + used) % PAGE == 0;
            if (side == ANY || (side == LEFT ? is_left : is_right && !is_left)) return (char *)hidden(block);
        }
        block_drop(block);
    }
    printf("no guarded block came\n");
    exit(98);
}

__attribute__((format(printf, 2, 3), unused)) static void announce(const char *key, const char *format, ...)
{
    char text[512];
    int length = snprintf(text, sizeof text, "%s: ", key);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length - 1, format, arguments);
    va_end(arguments);
    text[length++] = '\n';
    ssize_t ignored = write(1, text, (size_t)length);
    (void)ignored;
}

__attribute__((unused)) static void announce_overflow(const char *deed, const void *at, const char *block, size_t bytes)
{
    announce("expect", "hakmem: heap buffer overflow: %s %p, byte %zu of a block of %zu bytes at %p", deed, at,
             (size_t)((const char *)at - block), bytes, (const void *)block);
}
__attribute__((unused)) static void announce_underflow(const char *deed, const void *at, const char *block, size_t bytes)
{
    announce("expect", "hakmem: heap buffer underflow: %s %p, %zu bytes before a block of %zu bytes at %p", deed, at,
             (size_t)(block - (const char *)at), bytes, (const void *)block);
}
__attribute__((unused)) static void announce_after_free(const char *deed, const void *at, const char *block, size_t bytes)
{
    announce("expect", "hakmem: use after free: %s %p, byte %zu of a freed block of %zu bytes at %p", deed, at,
             (size_t)((const char *)at - block), bytes, (const void *)block);
}
__attribute__((unused)) static void announce_found(const char *kind, const void *at, const char *block, size_t bytes)
{
    long offset = (const char *)at - block;
    if (offset < 0)
        announce("expect", "hakmem: heap buffer %s, found by free: %p was written to, %ld bytes before a block of %zu bytes at %p",
                 kind, at, -offset, bytes, (const void *)block);
    else
        announce("expect", "hakmem: heap buffer %s, found by free: %p was written to, byte %ld of a block of %zu bytes at %p", kind,
                 at, offset, bytes, (const void *)block);
}

#endif
