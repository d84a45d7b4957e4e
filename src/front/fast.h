/* fast.h - the two fast paths. Every entry point is one line over them; there is no other definition.
 *
 * Neither touches the block, calls, locks or knows an option. What is unusual leaves by a tail call: malloc when
 * the bin's word is empty or the size is above 1 KiB, free when the granule's owner is not this thread's heap,
 * when no block starts at the address, when the block is free already, or when the slab's countdown ends.
 * test/laws/fastpath.py counts their instructions in the shipped library; ARCHITECTURE.md has the listing.
 */
#ifndef HAK_FRONT_FAST_H
#define HAK_FRONT_FAST_H

#include "base/attr.h"
#include "base/multiply.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "memory/window.h"
#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What they read of memory/region.h, slab/slab.h and heap/heap.h, in terms that C++ has too;
 * front/malloc.c asserts that the layouts agree. */
struct hak_fast_bin {
    uint64_t word;
    char *base;
};
enum { HAK_FAST_BINS = 65, HAK_FAST_STEPS = 64 };
struct hak_fast_heap {
    struct hak_fast_bin bin[HAK_FAST_BINS];
    uint16_t class_bytes[HAK_FAST_STEPS];
};
struct hak_fast_record {
    void *owner;
    uint64_t *words;
    char *start;
    uint64_t reciprocal;
};
struct hak_fast_row {
    char *start;
    void *slab;
    uint32_t block_bytes;
    uint16_t class_index, step;
    uint32_t countdown;
    int32_t bias;
};
extern __thread __attribute__((visibility("hidden"), tls_model("initial-exec"))) struct hak_heap *hak_self;

/* front/malloc.c: everything that is not fast. All keep errno unless they fail. */
__attribute__((visibility("hidden"))) void *hak_malloc_slow(size_t bytes);
/* more than 1 KiB, or 0 bytes; of this thread's heap */
__attribute__((visibility("hidden"))) void *hak_malloc_above(size_t bytes, struct hak_heap *heap);
/* its bin is empty; class_bytes as below */
__attribute__((visibility("hidden"))) void *hak_malloc_empty(size_t bytes, struct hak_heap *heap, size_t class_bytes);
__attribute__((visibility("hidden"))) void hak_free_slow(void *block);
struct hak_granule;
/* in the window, but its granule's owner is not this thread's heap as small blocks name it */
__attribute__((visibility("hidden"))) void hak_free_other(void *block, struct hak_granule *record, void *owner);
__attribute__((visibility("hidden"))) void hak_free_event(void *block);
/* the size stated by the caller is not the block's class: right, or misuse */
__attribute__((visibility("hidden"))) void hak_free_sized_slow(void *block, size_t bytes);
/* front/aligned.c: the caller names alignment and size; both are checked */
__attribute__((visibility("hidden"))) void hak_free_aligned(void *block, size_t align, size_t bytes);

/* The number of a word's lowest set bit; of 0, of no meaning. gcc would extend it from int, one instruction more. */
HAK_INLINE uint64_t hak_bit_first(uint64_t word) {
#if defined(__x86_64__)
    uint64_t first;
    __asm__("rep bsfq %1, %0" : "=r"(first) : "r"(word) : "cc"); /* tzcnt where there is one */
    return first;
#else
    return word ? (uint64_t)__builtin_ctzll(word) : 64;
#endif
}

/* Sets bit `index` of a row of bits, by a release store: a third thread that sees it may return the page after the program's
 * last writes to it. False, and nothing is written: it was set. */
HAK_INLINE bool hak_bit_set(uint64_t *words, uint64_t index) {
    uint64_t *word = &words[index >> 6];
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* gcc finds no bts, and makes an address of its own: five more otherwise. A plain store is a release store here. */
    __asm__ goto("movq %0, %%rax\n\tbtsq %1, %%rax\n\tjc %l2\n\tmovq %%rax, %0" : : "m"(*word), "r"(index) : "rax", "cc", "memory" : was_set);
    return true;
was_set:
    return false;
#else
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED), bit = UINT64_C(1) << (index & 63);
    if (HAK_UNLIKELY(seen & bit)) return false;
    __atomic_store_n(word, seen | bit, __ATOMIC_RELEASE);
    return true;
#endif
}

/* `steps` of 16 bytes: of that many and more the caller leaves, HAK_FAST_STEPS or less; of 0 bytes as well. A class's bytes, which a table in the
 * heap has for each step, are its bin's offset and its blocks' distance. In a heap that is none they are 0, whose bin is empty. Where `slow` is NULL
 * the two exits go on with what is known. */
HAK_INLINE void *hak_malloc_any(size_t bytes, size_t steps, void *(*slow)(size_t)) {
    char *heap = (char *)(void *)hak_self;
    size_t step = (bytes - 1) >> 4;
    HAK_SAME(step); /* what is compared is what was shifted: else two registers, and a longer constant */
    if (HAK_UNLIKELY(step >= steps)) return slow ? slow(bytes) : hak_malloc_above(bytes, (struct hak_heap *)(void *)heap);
    size_t class_bytes = ((struct hak_fast_heap *)(void *)heap)->class_bytes[step];
#define HAK_BIN ((struct hak_fast_bin *)(void *)(heap + class_bytes))
    uint64_t word = HAK_BIN->word, first = hak_bit_first(word); /* of a register: of memory an EPYC takes 7 cycles more a pair */
    uint64_t less; /* than the word, by one: what both have is all but its lowest bit, and does not wait for that one's number */
    if (HAK_UNLIKELY(__builtin_sub_overflow(word, 1, &less)))
        return slow ? slow(bytes) : hak_malloc_empty(bytes, (struct hak_heap *)(void *)heap, class_bytes);
    HAK_SAME(heap);
    HAK_BIN->word &= less;
    HAK_SAME(heap);
    return HAK_BIN->base + hak_multiply_short(first, class_bytes);
#undef HAK_BIN
}

HAK_INLINE void *hak_malloc_inline(size_t bytes, void *(*slow)(size_t)) { return hak_malloc_any(bytes, HAK_FAST_STEPS, slow); }

/* It only grows, and a caller that holds a block has seen it hold that block. gcc keeps an atomic load out of the
 * comparison, one instruction more; ThreadSanitizer is told the truth. */
HAK_INLINE size_t hak_window_bytes(void) {
#ifdef __SANITIZE_THREAD__
    return __atomic_load_n(&hak_window.bytes, __ATOMIC_RELAXED);
#else
    return hak_window.bytes;
#endif
}

/* `window_bytes`: beyond it the caller leaves, hak_window_bytes() or less. `slow_sized`: the caller states a size, which must be
 * that of the block's class here; else `slow` is given, and `other`, as hak_free_other(), which is told the owner that was read, relaxed. */
HAK_INLINE void hak_free_any(void *block, size_t window_bytes, void (*slow)(void *), void (*other)(void *, struct hak_granule *, void *), size_t bytes,
                             void (*slow_sized)(void *, size_t)) {
#define HAK_LEAVE() (slow_sized ? slow_sized(block, bytes) : slow(block))
    uintptr_t offset = (uintptr_t)block - hak_window.base;
    if (HAK_UNLIKELY(offset >= window_bytes)) return HAK_LEAVE();
    struct hak_fast_record *record = (struct hak_fast_record *)(hak_window.records - (offset >> 11 & ~(uintptr_t)31));
    void *owner = __atomic_load_n(&record->owner, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(owner != (void *)hak_self)) return slow_sized ? slow_sized(block, bytes) : other(block, (struct hak_granule *)(void *)record, owner);
    uint64_t low, index = hak_multiply((uint64_t)((char *)block - record->start), &record->reciprocal, &low);
    if (HAK_UNLIKELY(low >= record->reciprocal)) /* no block starts there */
        return HAK_LEAVE();
    uint64_t *words = record->words;
    struct hak_fast_row *row = (struct hak_fast_row *)(void *)words - 1;
    if (slow_sized && HAK_UNLIKELY(row->block_bytes - bytes >= row->step)) return HAK_LEAVE();
    if (HAK_UNLIKELY(!hak_bit_set(words, index))) return HAK_LEAVE(); /* free already */
    if (HAK_UNLIKELY(--row->countdown == 0)) hak_free_event(block);
#undef HAK_LEAVE
}

HAK_INLINE void hak_free_inline(void *block) { hak_free_any(block, hak_window_bytes(), hak_free_slow, hak_free_other, 0, 0); }
HAK_INLINE void hak_free_sized_inline(void *block, size_t bytes) {
    hak_free_any(block, hak_window_bytes(), 0, 0, bytes, hak_free_sized_slow);
}

#ifdef __cplusplus
}
#endif
#endif
