/* pool.h - a program in which a class is split by lifetime: one site makes up the growth, another is long-lived. */
#ifndef HAK_TEST_MISUSE_POOL_H
#define HAK_TEST_MISUSE_POOL_H

#include "misuse.h"

#ifdef __clang__
#define NOIPA __attribute__((noinline)) /* clang does not merge functions */
#else
#define NOIPA __attribute__((noipa))
#endif

enum { POOL_BYTES = 200, POOL_BRIEF = 400000, POOL_LONG = 4000 };
static void *pool_brief[POOL_BRIEF], *pool_long[POOL_LONG];

NOIPA static void *pool_site_long(void)
{
    void *block = malloc(POOL_BYTES);
    __asm__ volatile("" : "+r"(block));
    return block;
}

/* The last long-lived blocks lie in slabs of their own; their neighbours show it. */
static inline void *pool_block(void)
{
    for (int i = 0; i < POOL_BRIEF; i++) {
        pool_brief[i] = malloc(POOL_BYTES);
        if (i % 100 == 0) pool_long[i / 100] = pool_site_long();
    }
    char *last = (char *)pool_long[POOL_LONG - 2], *before = (char *)pool_long[POOL_LONG - 3];
    size_t bytes = malloc_usable_size(last);
    if (last - before != (long)bytes && before - last != (long)bytes) {
        printf("the class was not split\n");
        exit(3);
    }
    for (int i = 0; i < POOL_BRIEF; i += 2) free(pool_brief[i]);
    return last;
}

#endif
