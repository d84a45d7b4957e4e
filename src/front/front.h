/* front.h - what the rooms of front share: finding a block, and saying what is wrong with one. */
#ifndef HAK_FRONT_FRONT_H
#define HAK_FRONT_FRONT_H

#include "front/fast.h"
#include "heap/batch.h"
#include "heap/family.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "memory/large.h"

/* --- aligned.c --- */

/* A block of a slab that is asked for with so many bytes is aligned so; `align` is a power of two above 16, `bytes` not 0. Above 1 KiB only
 * classes of a power of two begin at more than a step (slab/class.h). More than a slab's block may have: of no meaning. */
HAK_INLINE size_t hak_front_aligned_bytes(size_t align, size_t bytes) {
    size_t rounded = (bytes - 1 + align) & -align;
    return align > HAK_LEAD_STEP && rounded > HAK_SMALL_BYTES_MAX ? (size_t)2 << hak_word_last(rounded - 1) : rounded;
}
/* What a block is to have whose rounded size no slab has: a large one is aligned by its span, and costs no more than a granule beyond its size. */
HAK_INLINE size_t hak_front_aligned_large(size_t bytes) { return bytes > HAK_SLAB_BLOCK_BYTES_MAX ? bytes : HAK_SLAB_BLOCK_BYTES_MAX + 1; }
/* That many bytes, from the class that is aligned so; not under the secure level, whose blocks are found by hak_secure_take(). */
HAK_INLINE bool hak_front_has_power(size_t align, size_t rounded) { return align > HAK_LEAD_STEP && hak_class_has_power(rounded); }
/* A block of a power of two (hak_class_has_power()), aligned to it; front/malloc.c. */
void *hak_front_power(size_t bytes, const void *address, uintptr_t stack);

/* --- start.c --- */

/* Options, region, thread key: before the first block. False: no address space. Idempotent, any thread. */
bool hak_start(void);

/* hak_malloc_inline()'s slow exit for those who do not leave by a tail call, and then say who asked. */
HAK_INLINE void *hak_malloc_none(size_t bytes) {
    (void)bytes;
    return NULL;
}
void *hak_malloc_slow_from(size_t bytes, const void *address, uintptr_t stack);
/* malloc and free, ours whoever else has one in the program; the first for who leaves by a tail call. */
void *hak_malloc_own(size_t bytes);
void hak_free_own(void *block);
HAK_INLINE void *hak_malloc_from(size_t bytes, const void *address, uintptr_t stack) {
    void *block = hak_malloc_inline(bytes, hak_malloc_none);
    return HAK_LIKELY(block != NULL) ? block : hak_malloc_slow_from(bytes, address, stack);
}

/* The calling thread's heap, made if it has none yet; NULL when memory is short. Not for a thread whose heap died: hak_heap_borrow(). */
HAK_INLINE struct hak_heap *hak_front_heap(void) {
    struct hak_heap *heap = hak_self;
    if (HAK_LIKELY(!hak_heap_is_none(heap))) return heap;
    return hak_start() ? hak_heap_birth(heap) : NULL;
}

/* It is of a slab of the size's class, or of that one's pair. No line is looked at that the slab's owner writes. */
HAK_INLINE bool hak_front_has_class(const struct hak_granule *record, size_t bytes) {
    unsigned exact = hak_class_of(bytes);
    return record->reciprocal == hak_classes[exact].reciprocal || record->reciprocal == hak_classes[hak_class_pair(exact)].reciprocal;
}

/* Another thread's block of a slab, of which `owner` was read: looked at as hak_find() does, and freed as free() does. False: nothing has happened,
 * and it is of another kind, or misuse. */
HAK_INLINE bool hak_front_free_strange(void *block, struct hak_granule *record, struct hak_heap *owner) {
    struct hak_heap *self = hak_self;
    if (HAK_UNLIKELY(owner == NULL || owner == self || owner == HAK_LARGE) || HAK_UNLIKELY(hak_secure_is_on())) return false;
    uint64_t rest, index = hak_multiply((uint64_t)((const char *)block - record->start), &record->reciprocal, &rest);
    if (HAK_UNLIKELY(rest >= record->reciprocal) || HAK_UNLIKELY(hak_load_acquire(&record->words[index / 64]) >> index % 64 & 1)) return false;
    if (HAK_LIKELY(!hak_fork_happened(self)) && HAK_LIKELY(hak_batch_free(self, record, (unsigned)index))) return true;
    if (HAK_UNLIKELY(hak_heap_is_none(self)) || HAK_UNLIKELY(hak_load_relaxed(&self->has_instances))) return false;
    hak_fork_check(self);
    hak_stranger_free_first(self, owner, record, block, (unsigned)index);
    return true;
}

/* --- heaps.c: blocks of families' heaps (heap/family.h) --- */

/* The calling thread, whose own heap is `self`, frees block `index` of a slab; false: it is not of an instance of this thread's. */
bool hak_front_free_own(struct hak_heap *self, struct hak_heap *owner, struct hak_granule *record, void *block, size_t index);
bool hak_front_kept_own(const struct hak_granule *record, const void *block);
/* A visit for a family found no slab within its limit. */
void *hak_front_short_of_family(size_t bytes, struct hak_heap *heap, unsigned class_index);
/* As malloc, or aligned_alloc; where the other block is a family's from that family. */
void *hak_front_malloc_beside(const void *block, size_t bytes, const void *address, uintptr_t stack);
void *hak_front_aligned_beside(const void *block, size_t align, size_t bytes);

/* --- secure.c: malloc under the secure level (heap/secure.h) --- */

bool hak_front_secure_begin(void); /* false: memory is short */
/* A block of `total` bytes, of which `bytes` are the program's; from the thread's instance of the level's family. */
void *hak_front_secure(struct hak_heap *home, size_t total, size_t bytes, const void *address, uintptr_t stack);
/* hak_large_resize() and hak_large_move() of a block that has guards behind it. */
bool hak_front_secure_large_resize(struct hak_granule *record, size_t bytes);
void *hak_front_secure_large_move(struct hak_granule *record, size_t bytes);

/* Is the block of this record free, and kept for the calling thread's next malloc? */
HAK_INLINE bool hak_front_kept(const struct hak_granule *record, const void *block) {
    struct hak_heap *self = hak_self;
    unsigned class_index = hak_slab_owners_middle(self, hak_load_relaxed(&record->owner));
    if (class_index != 0) return hak_middle_has(self, class_index, block);
    return HAK_UNLIKELY(hak_load_relaxed(&hak_family_any) != 0) && hak_front_kept_own(record, block);
}

/* --- api.c: who counts by named call sites; start.c sets them --- */
extern void (*hak_front_on_site_alloc)(uintptr_t site, size_t bytes);
extern void (*hak_front_on_site_free)(uintptr_t site, size_t bytes);

/* --- misuse.c: one line, then abort --- */

__attribute__((noreturn, cold)) void hak_misuse(const char *function, const void *block);
__attribute__((noreturn, cold)) void hak_misuse_size(const char *function, const void *block, size_t bytes, size_t stated);
__attribute__((noreturn, cold)) void hak_misuse_align(const char *function, const void *block, size_t align);

__attribute__((noreturn, cold)) void hak_misuse_written(const char *function, const void *block, size_t block_bytes, size_t byte, bool is_free);
__attribute__((noreturn, cold)) void hak_misuse_heap(const char *function, const void *heap);

/* --- blocks of who hangs on heap/hooks.h: asked last, where it would be misuse --- */

HAK_INLINE bool hak_front_watched_free(void *block) {
    bool (*on_free)(struct hak_heap *, void *) = HAK_HOOK(watched_free);
    return on_free && on_free(hak_self, block);
}
HAK_INLINE size_t hak_front_watched_bytes(const void *block) {
    size_t (*bytes)(const void *) = HAK_HOOK(watched_bytes);
    return bytes ? bytes(block) : 0;
}

/* Behind the line about misuse: what they know of the block. */
HAK_INLINE void hak_front_watched_misused(const void *block, bool frees) {
    void (*on_misused)(const void *, bool) = HAK_HOOK(watched_misused);
    if (on_misused) on_misused(block, frees);
}

/* --- shortage.c: memory is short --- */

/* The program's callback, if there is one: is it worth to try again? `tries` counts from 0. The caller holds nothing. */
bool hak_shortage_ask(size_t bytes, unsigned tries);
void *hak_shortage_end(void); /* it is not: NULL and ENOMEM */
void hak_shortage_in_child(void);

/* --- a live block, as free() would find it --- */

struct hak_found {
    struct hak_granule *record; /* NULL: a mapping of its own, memory/outside.h */
    size_t bytes : 61;          /* usable. With what follows in one word, so that all comes back in two registers */
    size_t large : 1;
    size_t exact : 1; /* of a slab under the secure level: `bytes` are what was asked for */
    size_t apart : 1; /* of who hangs on heap/hooks.h, in no granule: `bytes` are what was asked for, not a class's */
};
HAK_STATIC(sizeof(struct hak_found) == 16 || sizeof(size_t) != 8);

/* Any pointer but NULL; what is not a live block ends the program, `function` being named. */
struct hak_found hak_find(const char *function, const void *block);

/* The bytes of a live small block of the thread's own heap, looked up as free() does; 0: it is anything else, NULL, too. Never a block of
 * the secure level, for those are its families'. */
HAK_INLINE size_t hak_front_own_bytes(const void *block) {
    if (HAK_UNLIKELY(!hak_region_holds(block))) return 0;
    const struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    if (HAK_UNLIKELY(hak_load_relaxed(&((struct hak_granule *)(uintptr_t)record)->owner) != hak_self)) return 0;
    uint64_t low, index = hak_multiply((uint64_t)((const char *)block - record->start), &record->reciprocal, &low);
    if (HAK_UNLIKELY(low >= record->reciprocal) || HAK_UNLIKELY(hak_load_relaxed(&record->words[index / 64]) >> index % 64 & 1)) return 0;
    return hak_row_of(record->words)->block_bytes;
}

/* The usual ones of what is larger: the thread's own of a slab above 1 KiB, unless it may be free and kept for the next malloc, or a large block, whose record
 * is *large then, else NULL. 0: hak_find() has to say. */
HAK_INLINE size_t hak_front_usual_bytes(const void *block, struct hak_granule **large) {
    *large = NULL;
    if (HAK_UNLIKELY(!hak_region_holds(block))) return 0;
    struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    struct hak_heap *self = hak_self, *owner = hak_load_acquire(&record->owner);
    size_t class_index = hak_slab_owners_middle(self, owner);
    if (class_index == 0) {
        if (HAK_UNLIKELY(owner != HAK_LARGE) || HAK_UNLIKELY(record->start != block)) return 0;
        *large = record;
        return hak_large_usable(record);
    }
    uint64_t low, index = hak_multiply((uint64_t)((const char *)block - record->start), &record->reciprocal, &low);
    if (HAK_UNLIKELY(low >= record->reciprocal)) return 0;
    if (HAK_UNLIKELY(hak_word_has(hak_load_relaxed(&record->words[index / 64]) | hak_middle_of(self, class_index)->numbers, index))) return 0;
    return hak_row_of(record->words)->block_bytes;
}

/* find.c: of any block. */
size_t hak_usable_further(const char *function, const void *block);
/* What a block can hold; of NULL 0. A server that counts its memory asks at each malloc and each free. */
HAK_INLINE size_t hak_front_usable(const char *function, const void *block) {
    size_t bytes = hak_front_own_bytes(block);
    return HAK_LIKELY(bytes != 0) || HAK_UNLIKELY(!block) ? bytes : hak_usable_further(function, block);
}

/* realloc once left a block larger than a smaller one would be, there being no memory for that: sizes say little since. */
extern hak_atomic_u32 hak_realloc_stayed;

/* Ends the program unless a live block may be one of the stated size; of the alignment and at least the size. */
/* What a block of so many bytes has, a guarded one apart. */
size_t hak_front_good(size_t bytes);
void hak_check_size(const char *function, const void *block, size_t stated);
/* Checks so, and frees. NULL: nothing. */
void hak_free_stated(void *block, size_t stated, const char *function);
void hak_check_aligned(const char *function, const void *block, size_t align, size_t bytes);

/* --- large blocks and failure, front/malloc.c --- */

/* What is asked of a large block's span: whole pages where it is to begin with one (memory/large.h). */
HAK_INLINE size_t hak_front_span_bytes(size_t bytes, size_t align) { return align > HAK_LEAD_STEP ? hak_front_good(bytes) : bytes; }

/* NULL and ENOMEM, and memory is not short: so much there never is, or a heap of the program may not have. */
void *hak_front_too_much(void);

/* Sizes above HAK_SLAB_BLOCK_BYTES_MAX, or alignments above it; `address` and `stack` say who asked (the return address,
 * and the stack pointer before the call). Sets errno on failure. */
void *hak_front_large(size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed);
/* The same for a heap that has none kept, by nobody's hooks. */
void *hak_front_large_found(struct hak_heap *heap, size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed);
#define HAK_FRONT_CALLER() __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa()
/* A visit found no memory: once more after giving back all that is free; sets errno if that does not help. */
void *hak_front_short(size_t bytes, struct hak_heap *heap, unsigned class_index);
void *hak_front_aligned(size_t align, size_t bytes);
/* A large block to another large size in place, or by moving its pages, to a granule's start; under the hard limit also once what is free was given back.
 * False: a copy is left, and it is as it was. True: *resized is where it is, or NULL (ENOMEM): the limit leaves no room for a copy either. */
bool hak_front_resize_or_refuse(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes, void **resized);
/* Of a block that may be any but NULL. */
void *hak_front_realloc(const char *function, void *block, size_t bytes, const void *address, uintptr_t stack);

#endif
