/* misuse.h - what the misuse programs share: they announce the line they expect, then do the wrong thing.
 *
 * Owns:   nothing.
 * Method: expect() prints the exact line that the library must print on standard error; where two lines are
 *         right, both are announced. run.py compares and wants death by SIGABRT. A program that survives
 *         exits with 0, which run.py counts as a failure; the control_*.c programs must survive in silence.
 */
#ifndef HAK_TEST_MISUSE_H
#define HAK_TEST_MISUSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <hakmem/hakmem.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void free_sized(void *ptr, size_t size);
extern void free_aligned_sized(void *ptr, size_t alignment, size_t size);
extern void delete_sized(void *ptr, size_t size) __asm__("_ZdlPvm");
extern void delete_array_sized(void *ptr, size_t size) __asm__("_ZdaPvm");
extern void delete_aligned(void *ptr, size_t alignment) __asm__("_ZdlPvSt11align_val_t");
extern void delete_sized_aligned(void *ptr, size_t size, size_t alignment) __asm__("_ZdlPvmSt11align_val_t");
extern void delete_plain(void *ptr) __asm__("_ZdlPv");

/* The compiler must neither see what a pointer is nor foretell what a call does. */
static inline void *hidden(const volatile void *ptr)
{
    void *out = (void *)(uintptr_t)ptr;
    __asm__ volatile("" : "+r"(out) : : "memory");
    return out;
}

static inline void *at(const volatile void *ptr, long offset_bytes)
{
    return hidden((const char *)hidden(ptr) + offset_bytes);
}

__attribute__((format(printf, 1, 2), unused)) static void expect(const char *format, ...)
{
    char text[512] = "expect: hakmem: ";
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    length += (size_t)vsnprintf(text + length, sizeof text - length, format, arguments);
    va_end(arguments);
    text[length++] = '\n';
    ssize_t ignored = write(1, text, length);
    (void)ignored;
}

__attribute__((unused)) static void expect_double_free(const char *function, const void *ptr, size_t bytes)
{
    expect("%s: double free of %p: this block of %zu bytes is free already", function, ptr, bytes);
}

/* Of what does not free. */
__attribute__((unused)) static void expect_freed(const char *function, const void *ptr, size_t bytes)
{
    expect("%s: %p is a block of %zu bytes that is free already", function, ptr, bytes);
}

__attribute__((unused)) static void expect_inside(const char *function, const void *ptr, const void *start)
{
    expect("%s: %p is inside a block of %zu bytes that starts at %p", function, ptr,
           malloc_usable_size(hidden(start)), start);
}

__attribute__((unused)) static void expect_never(const char *function, const void *ptr)
{
    expect("%s: %p was never handed out by malloc", function, ptr);
}

__attribute__((unused)) static void expect_foreign(const char *function, const void *ptr)
{
    expect("%s: %p does not belong to malloc", function, ptr);
}

/* A class that is used often has slabs of its own; before that its blocks come from a coarser class. */
__attribute__((unused)) static void warm_up(size_t size)
{
    for (int i = 0; i < 100; i++)
        *(volatile char *)hidden(malloc(size)) = 1;
}

/* Runs `work` in a thread that ends: what it gave back is delivered then. */
__attribute__((unused)) static void in_thread(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) != 0 || pthread_join(thread, NULL) != 0)
        exit(99);
}

__attribute__((unused)) static void *thread_free(void *block)
{
    free(block);
    return NULL;
}

/* By a thread that has a heap: it tells the owner of single blocks. */
__attribute__((unused)) static void *thread_free_again(void *block)
{
    free(hidden(malloc(80)));
    free(block);
    return NULL;
}

/* After it every owner has collected what others gave back to it. */
__attribute__((unused)) static void collect(size_t size)
{
    hak_collect();
    for (int i = 0; i < 20000; i++)
        *(volatile char *)hidden(malloc(size)) = 1;
    hak_collect();
}

#endif
