/* front.h - what the rooms of front share: finding a block, and saying what is wrong with one. */
#ifndef HAK_FRONT_FRONT_H
#define HAK_FRONT_FRONT_H

#include "front/fast.h"
#include "heap/heap.h"
#include "memory/large.h"

/* --- start.c --- */

/* Options, region, thread key: before the first block. False: no address space. Idempotent, any thread. */
bool hak_start(void);

/* The calling thread's heap, made if it has none yet; NULL when memory is short. */
HAK_INLINE struct hak_heap *hak_front_heap(void) {
    struct hak_heap *heap = hak_self;
    if (HAK_LIKELY(!hak_heap_is_none(heap))) return heap;
    return hak_start() ? hak_heap_birth() : NULL;
}

/* --- misuse.c: one line, then abort --- */

__attribute__((noreturn, cold)) void hak_misuse(const char *function, const void *block);
__attribute__((noreturn, cold)) void hak_misuse_size(const char *function, const void *block, size_t bytes, size_t stated);
__attribute__((noreturn, cold)) void hak_misuse_align(const char *function, const void *block, size_t align);

/* --- a live block, as free() would find it --- */

struct hak_found {
    struct hak_granule *record; /* NULL: a mapping of its own, memory/outside.h */
    size_t bytes;               /* usable */
    bool large;
};

/* Any pointer but NULL; what is not a live block ends the program, `function` being named. */
struct hak_found hak_find(const char *function, const void *block);

/* Ends the program unless a live block may be one of the stated size; of the alignment and at least the size. */
void hak_check_size(const char *function, const void *block, size_t stated);
void hak_check_aligned(const char *function, const void *block, size_t align, size_t bytes);

/* --- large blocks and failure, front/malloc.c --- */

/* Sizes above HAK_SLAB_BLOCK_BYTES_MAX, or alignments above it. Sets errno on failure. */
void *hak_front_large(size_t bytes, size_t align, bool *zeroed);
/* A visit found no memory: once more after giving back all that is free; sets errno if that does not help. */
void *hak_front_short(struct hak_heap *heap, unsigned class_index);
void *hak_front_aligned(size_t align, size_t bytes);
void *hak_front_realloc(const char *function, void *block, size_t bytes);

#endif
