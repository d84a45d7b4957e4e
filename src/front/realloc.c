/* realloc.c - realloc and in-place growth.
 *
 * A small block stays where it is while its size is at least half used, so that a shrunk block wastes at most
 * as much as it holds. A large block grows into the granules behind it, else its pages are moved, else copied.
 */
#include "front/front.h"

#include "heap/secure.h"
#include "memory/limit.h"
#include "memory/outside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOVE_BYTES_MIN = 1 << 20 };

hak_atomic_u32 hak_realloc_stayed;

/* Where there is no memory for a smaller block the old one serves: programs shrink just then, and few look at the result. */
HAK_INLINE void *copied(void *fresh, void *block, size_t old_bytes, size_t bytes, int saved) {
    if (HAK_UNLIKELY(!fresh)) {
        if (bytes > old_bytes) return NULL;
        errno = saved;
        hak_store_relaxed(&hak_realloc_stayed, 1);
        return block;
    }
    memcpy(fresh, block, old_bytes < bytes ? old_bytes : bytes);
    hak_free_inline(block);
    return fresh;
}

/* It may be a family's, and stays that. */
static HAK_COLD void *copy_where_families_are(void *block, size_t old_bytes, size_t bytes, const void *address, uintptr_t stack) {
    int saved = errno;
    return copied(hak_front_malloc_beside(block, bytes, address, stack), block, old_bytes, bytes, saved);
}

static void *copy_to_new(void *block, size_t old_bytes, size_t bytes, const void *address, uintptr_t stack) {
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_family_any) != 0)) return copy_where_families_are(block, old_bytes, bytes, address, stack);
    int saved = bytes > old_bytes ? 0 : errno;
    return copied(hak_malloc_from(bytes, address, stack), block, old_bytes, bytes, saved);
}

static void *resize_in_place_or_move(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    struct hak_heap *heap = hak_self;
    bool counted = !hak_heap_is_none(heap);
    bool is_secure = hak_secure_is_on();
    if (is_secure ? hak_front_secure_large_resize(record, bytes) : hak_large_resize(record, bytes)) {
        if (counted && bytes > old_bytes) HAK_COUNT(&heap->counters, large_grown, 1);
        return block;
    }
    void *moved = old_bytes < MOVE_BYTES_MIN ? NULL : is_secure ? hak_front_secure_large_move(record, bytes) : hak_large_move(record, bytes);
    if (counted && moved) HAK_COUNT(&heap->counters, large_moved, 1);
    if (counted && !moved) HAK_COUNT(&heap->counters, large_copied, 1);
    return moved;
}

static void *resize(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    uint32_t (*lift)(void *) = HAK_HOOK(large_lift);
    uint32_t lifted = HAK_UNLIKELY(lift != NULL) ? lift(block) : 0;
    void *resized = resize_in_place_or_move(record, block, old_bytes, bytes);
    if (HAK_UNLIKELY(lift != NULL))
        HAK_HOOK(large_lay)(hak_self, lifted, resized ? resized : block, old_bytes, resized ? bytes : old_bytes);
    return resized;
}

static HAK_COLD void *resize_in_family(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    struct hak_family_resize change;
    if (!hak_family_resize_begin(&change, record, hak_large_granules_as(record, bytes))) return NULL;
    void *resized = resize(record, block, old_bytes, bytes);
    hak_family_resize_end(&change, resized ? hak_granule_at(hak_granule_of(resized)) : NULL);
    return resized;
}

static void *resize_where_it_begins(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    if (HAK_UNLIKELY((hak_large_facts(record) & HAK_LARGE_FAMILY) != 0)) return resize_in_family(record, block, old_bytes, bytes);
    return resize(record, block, old_bytes, bytes);
}

/* What is more than the window there never is: malloc says so. */
static bool limit_refuses_copy(size_t bytes) {
    return hak_limit_refuses(((bytes - 1) >> HAK_GRANULE_SHIFT) + 1) && bytes <= hak_region_bytes();
}

/* Where the block begins it needs a granule more than at its span's start (docs/decisions/0013), and that is not to be had, or beyond a limit. */
static HAK_COLD void *resize_settled(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    struct hak_heap *heap = hak_self;
    struct hak_family_resize change = { NULL, 0, 0, 0 };
    bool is_familys = (hak_large_facts(record) & HAK_LARGE_FAMILY) != 0;
    if (is_familys && !hak_family_resize_begin(&change, record, hak_large_granules_for(bytes))) return NULL;
    uint32_t (*lift)(void *) = HAK_HOOK(large_lift);
    uint32_t lifted = HAK_UNLIKELY(lift != NULL) ? lift(block) : 0;
    bool is_resized = hak_large_resize_settled(record, bytes, old_bytes < bytes ? old_bytes : bytes);
    void *resized = is_resized ? record->start : block;
    if (HAK_UNLIKELY(lift != NULL)) HAK_HOOK(large_lay)(heap, lifted, resized, old_bytes, is_resized ? bytes : old_bytes);
    if (is_familys) hak_family_resize_end(&change, is_resized ? record : NULL);
    if (is_resized && !hak_heap_is_none(heap)) HAK_COUNT(&heap->counters, large_grown, 1);
    return is_resized ? resized : NULL;
}

static void *resize_any(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes) {
    void *resized = resize_where_it_begins(record, block, old_bytes, bytes);
    if (HAK_LIKELY(resized != NULL)) return resized; /* a moved block's record is another's already */
    bool needs_less = hak_large_granules_as(record, bytes) > hak_large_granules_for(bytes);
    return HAK_UNLIKELY(needs_less) ? resize_settled(record, block, old_bytes, bytes) : NULL;
}

/* There is no room under the hard limit for the block and a copy; for what it grows by there may be. False: there is for a copy now. */
static HAK_COLD bool resize_within_limit(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes, void **resized) {
    for (unsigned tries = 0; limit_refuses_copy(bytes); tries++) {
        hak_heap_collect(hak_self);
        *resized = resize_any(record, block, old_bytes, bytes);
        if (*resized) return true;
        if (!limit_refuses_copy(bytes)) return false;
        if (!hak_shortage_ask(bytes, tries)) {
            *resized = hak_shortage_end();
            return true;
        }
    }
    return false;
}

bool hak_front_resize_or_refuse(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes, void **resized) {
    *resized = resize_any(record, block, old_bytes, bytes);
    return *resized || (HAK_UNLIKELY(limit_refuses_copy(bytes)) && resize_within_limit(record, block, old_bytes, bytes, resized));
}

static HAK_NOINLINE void *resize_large(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes, const void *address,
                                       uintptr_t stack) {
    void *resized;
    if (bytes > HAK_SLAB_BLOCK_BYTES_MAX && hak_front_resize_or_refuse(record, block, old_bytes, bytes, &resized)) return resized;
    void *fresh = copy_to_new(block, old_bytes, bytes, address, stack);
    enum { LEAST = HAK_SLAB_BLOCK_BYTES_MAX + 1 };
    if (HAK_UNLIKELY(fresh == block) && bytes < LEAST && old_bytes > LEAST) return resize_large(record, block, old_bytes, LEAST, address, stack);
    return fresh;
}

/* Where there is no memory for another block this one serves, if it has room: for less than half of it, too. */
static HAK_COLD void *resize_exact(struct hak_found found, void *block, size_t bytes, const void *address, uintptr_t stack) {
    size_t block_bytes = hak_row_of(found.record->words)->block_bytes;
    if (hak_secure_resize(block, found.record, bytes)) return block;
    int saved = errno;
    void *fresh = copy_to_new(block, found.bytes, bytes, address, stack);
    if (HAK_LIKELY(fresh && fresh != block) || bytes > block_bytes - HAK_SECURE_WORD_BYTES) return fresh;
    errno = saved;
    hak_secure_arm(block, block_bytes, bytes);
    return block;
}

/* A block of a slab, of `old_bytes`. */
HAK_INLINE bool small_stays(size_t old_bytes, size_t bytes) { return bytes <= old_bytes && bytes > old_bytes / 2; }
static void *resize_small(void *block, size_t old_bytes, size_t bytes, const void *address, uintptr_t stack) {
    if (bytes <= HAK_SLAB_BLOCK_BYTES_MAX && bytes <= old_bytes) {
        unsigned exact = hak_class_of(bytes); /* a rare class's block is larger than half may explain */
        if (hak_classes[hak_classes[exact].coarse].block_bytes == old_bytes) return block;
    }
    return copy_to_new(block, old_bytes, bytes, address, stack);
}

/* A large block ends with a page: with the same one. Who samples, or guards what is behind it, is told of each byte. */
HAK_INLINE bool large_stays(size_t old_bytes, size_t bytes) {
    if (bytes > old_bytes || bytes <= HAK_SLAB_BLOCK_BYTES_MAX || old_bytes - bytes >= (size_t)1 << hak_page_shift()) return false;
    return HAK_LIKELY(!hak_secure_is_on()) && HAK_LIKELY(HAK_HOOK(large_lift) == NULL);
}

HAK_INLINE void *resize_large_or_stay(struct hak_granule *record, void *block, size_t old_bytes, size_t bytes, const void *address, uintptr_t stack) {
    return large_stays(old_bytes, bytes) ? block : resize_large(record, block, old_bytes, bytes, address, stack);
}

/* Of any kind, and to any size. */
static HAK_NOINLINE void *realloc_found(const char *function, void *block, size_t bytes, const void *address, uintptr_t stack) {
    struct hak_found found = hak_find(function, block);
    if (bytes == 0) { /* as glibc does; C23 leaves it undefined */
        hak_free_own(block);
        return NULL;
    }
    if (HAK_UNLIKELY(bytes > PTRDIFF_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    if (found.large) return resize_large_or_stay(found.record, block, found.bytes, bytes, address, stack);
    if (HAK_UNLIKELY(found.apart) && bytes != found.bytes) /* who uses the old address is to be found */
        return copy_to_new(block, found.bytes, bytes, address, stack);
    if (HAK_UNLIKELY(found.exact)) return resize_exact(found, block, bytes, address, stack);
    return small_stays(found.bytes, bytes) ? block : resize_small(block, found.bytes, bytes, address, stack);
}

void *hak_front_realloc(const char *function, void *block, size_t bytes, const void *address, uintptr_t stack) {
    struct hak_granule *large;
    size_t old_bytes = hak_front_usual_bytes(block, &large);
    if (HAK_UNLIKELY(old_bytes == 0) || HAK_UNLIKELY(bytes - 1 >= PTRDIFF_MAX)) return realloc_found(function, block, bytes, address, stack);
    if (large) return resize_large_or_stay(large, block, old_bytes, bytes, address, stack);
    return small_stays(old_bytes, bytes) ? block : resize_small(block, old_bytes, bytes, address, stack);
}

HAK_EXPORT void *realloc(void *block, size_t bytes) {
    size_t own_bytes = hak_front_own_bytes(block);
    if (HAK_LIKELY(small_stays(own_bytes, bytes))) return block; /* not of 0 bytes, nor where it is not one's own */
    if (HAK_LIKELY(own_bytes != 0) && HAK_LIKELY(bytes - 1 < HAK_SLAB_BLOCK_BYTES_MAX))
        return resize_small(block, own_bytes, bytes, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    if (!block) return hak_malloc_own(bytes);
    return hak_front_realloc("realloc", block, bytes, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
}

HAK_ALIAS(realloc) extern void *__libc_realloc(void *block, size_t bytes);
