/* aligned.c - aligned blocks, stated sizes and alignments, usable size.
 *
 * A block of up to 1 KiB is aligned to what divides both its slab's start (64 KiB) and its class's size; a size rounded up to
 * a multiple of the alignment has such a class, and such a coarser class (test/unit/class.c). So an aligned block costs its rounded
 * size and no more. Above 1 KiB that holds to 128 bytes, for slabs' blocks begin at any multiple of those (slab/class.h); for more it is
 * the next power of two, from 4 KiB on of a class of its own. What would be more than 32 KiB by that, and larger sizes, are large blocks of
 * whole pages, whose span is aligned.
 */
#include "front/front.h"

#include "hakmem/hakmem.h"
#include "heap/secure.h"
#include "rules/options.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

/* `total` is a multiple of the alignment, and has room for what lies behind a block. */
static HAK_COLD void *secure_aligned(size_t total, size_t bytes, const void *address, uintptr_t stack) {
    char *block = hak_malloc_from(total - HAK_SECURE_WORD_BYTES, address, stack);
    if (block) hak_secure_arm_as(block, bytes);
    return block;
}

static HAK_NOINLINE void *aligned_further(size_t align, size_t bytes, const void *address, uintptr_t stack) {
    if (HAK_UNLIKELY(align > PTRDIFF_MAX || bytes > PTRDIFF_MAX - align)) {
        errno = ENOMEM;
        return NULL;
    }
    if (HAK_UNLIKELY(hak_heap_is_none(hak_self))) hak_start(); /* which says whether the level is on */
    size_t rounded = hak_front_aligned_bytes(align, (bytes ? bytes : 1) + hak_secure_word_bytes());
    if (HAK_UNLIKELY(hak_secure_is_on()) && rounded <= HAK_SLAB_BLOCK_BYTES_MAX) return secure_aligned(rounded, bytes, address, stack);
    if (hak_front_has_power(align, rounded)) return hak_front_power(rounded, address, stack);
    if (rounded <= HAK_SLAB_BLOCK_BYTES_MAX) return hak_malloc_from(rounded, address, stack);
    bool zeroed;
    return hak_front_large(hak_front_aligned_large(bytes), align, address, stack, &zeroed);
}

/* The usual way calls nothing but as its last thing: a small block, and it is known that the secure level is off. */
void *hak_front_aligned(size_t align, size_t bytes) {
    if (align <= 16) return hak_malloc_inline(bytes, NULL);
    size_t rounded = hak_front_aligned_bytes(align, bytes);
    bool is_usual = bytes - 1 < HAK_SLAB_BLOCK_BYTES_MAX && rounded - 1 < HAK_SLAB_BLOCK_BYTES_MAX && HAK_LIKELY(hak_load_relaxed(&hak_secure.is_off) != 0);
    if (HAK_UNLIKELY(!is_usual)) return aligned_further(align, bytes, HAK_FRONT_CALLER());
    if (hak_front_has_power(align, rounded)) return hak_front_power(rounded, HAK_FRONT_CALLER());
    return hak_malloc_inline(rounded, NULL);
}

static bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

HAK_EXPORT void *memalign(size_t align, size_t bytes) {
    if (HAK_UNLIKELY(align > SIZE_MAX / 2 + 1)) {
        errno = EINVAL;
        return NULL;
    }
    if (align <= 16) return hak_malloc_inline(bytes, NULL);
    return hak_front_aligned((size_t)2 << hak_word_last(align - 1), bytes); /* as glibc: any alignment, rounded up to a power of two */
}

HAK_EXPORT void *aligned_alloc(size_t align, size_t bytes) {
    if (HAK_UNLIKELY(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    return hak_front_aligned(align, bytes);
}

HAK_EXPORT int posix_memalign(void **result, size_t align, size_t bytes) {
    if (HAK_UNLIKELY(!is_power_of_two(align) || align % sizeof(void *) != 0)) return EINVAL;
    void *block = hak_front_aligned(align, bytes);
    if (HAK_UNLIKELY(!block)) return ENOMEM; /* in errno too, as glibc leaves it */
    *result = block;
    return 0;
}

HAK_EXPORT void *valloc(size_t bytes) {
    hak_start(); /* which finds the page's size */
    return hak_front_aligned((size_t)1 << (hak_region.page_shift ? hak_region.page_shift : 12), bytes);
}

void *pvalloc(size_t bytes); /* not in musl's headers */
HAK_EXPORT void *pvalloc(size_t bytes) {
    hak_start(); /* which finds the page's size */
    size_t page = (size_t)1 << (hak_region.page_shift ? hak_region.page_shift : 12);
    if (HAK_UNLIKELY(bytes > PTRDIFF_MAX - page)) {
        errno = ENOMEM;
        return NULL;
    }
    return hak_front_aligned(page, bytes ? hak_round_up(bytes, page) : page);
}

/* --- what the caller states --- */

void hak_check_size(const char *function, const void *block, size_t stated) {
    struct hak_found found = hak_find(function, block);
    if (HAK_UNLIKELY(!HAK_OPT(size_check))) return;
    if (stated > found.bytes + (found.exact && found.bytes == 0)) hak_misuse_size(function, block, found.bytes, stated);
    if (HAK_UNLIKELY(found.exact) && stated < found.bytes && found.bytes > 1) hak_misuse_size(function, block, found.bytes, stated);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_realloc_stayed))) return;
    bool is_outside = !found.record && !found.apart;
    if (is_outside && stated > found.bytes / 2) return; /* realloc leaves one whole down to a half */
    if (found.large || found.bytes > HAK_SLAB_BLOCK_BYTES_MAX) { /* exact to the page: realloc and hak_expand keep it so */
        size_t page = (size_t)1 << hak_region.page_shift;
        bool is_just_large = hak_secure_is_on() && stated <= HAK_SLAB_BLOCK_BYTES_MAX && stated > HAK_SLAB_BLOCK_BYTES_MAX - HAK_SECURE_WORD_BYTES;
        if (is_just_large && hak_round_up(stated, page) == found.bytes) return;
        size_t lead = found.large ? hak_large_lead(found.bytes) : 0;
        bool is_slabs = found.large && stated <= HAK_SLAB_BLOCK_BYTES_MAX;
        if (is_slabs || hak_front_good(lead + stated) != hak_front_good(lead + found.bytes)) hak_misuse_size(function, block, found.bytes, stated);
        return;
    }
    size_t block_bytes = found.apart ? hak_front_good(found.bytes) : found.bytes;
    const struct hak_class *exact = &hak_classes[stated ? hak_class_of(stated) : 1];
    if (exact->block_bytes > block_bytes / 2) return; /* realloc leaves a block in place down to a half; a shortage takes less than twice */
    if (hak_classes[exact->coarse].block_bytes != block_bytes) hak_misuse_size(function, block, found.bytes, stated);
}

HAK_NOINLINE void hak_free_sized_slow(void *block, size_t bytes) {
    if (!block) return;
    unsigned middle_class;
    const struct hak_granule *record = hak_front_middle(block, &middle_class);
    if (record && bytes - 1 < HAK_SLAB_BLOCK_BYTES_MAX && hak_front_has_class(record, bytes)) {
        hak_middle_free(block, record, hak_self, "free_sized", middle_class);
        return;
    }
    hak_check_size("free_sized", block, bytes);
    hak_free_inline(block);
}

void hak_check_aligned(const char *function, const void *block, size_t align, size_t bytes) {
    if ((uintptr_t)block & (align - 1)) hak_misuse_align(function, block, align);
    struct hak_found found = hak_find(function, block);
    bool is_less = found.exact && bytes < found.bytes && found.bytes > 1;
    if ((bytes > found.bytes || is_less) && HAK_OPT(size_check)) hak_misuse_size(function, block, found.bytes, bytes);
}

void hak_free_aligned(void *block, size_t align, size_t bytes) {
    if (!block) return;
    hak_check_aligned("free_aligned_sized", block, align, bytes);
    hak_free_inline(block);
}

/* C23; and cfree, which SVID had */
HAK_EXPORT void free_sized(void *block, size_t bytes);
HAK_EXPORT void free_aligned_sized(void *block, size_t align, size_t bytes);
HAK_EXPORT void cfree(void *block);

HAK_EXPORT void free_sized(void *block, size_t bytes) { hak_free_sized_inline(block, bytes); }
HAK_EXPORT void free_aligned_sized(void *block, size_t align, size_t bytes) { hak_free_aligned(block, align, bytes); }
HAK_EXPORT void cfree(void *block) { hak_free_inline(block); }

HAK_EXPORT size_t malloc_usable_size(void *block) { return hak_front_usable("malloc_usable_size", block); }

HAK_ALIAS(memalign) extern void *__libc_memalign(size_t align, size_t bytes);
HAK_ALIAS(valloc) extern void *__libc_valloc(size_t bytes);
HAK_ALIAS(pvalloc) extern void *__libc_pvalloc(size_t bytes);
HAK_ALIAS(posix_memalign) extern int __posix_memalign(void **result, size_t align, size_t bytes);
HAK_ALIAS(cfree) extern void __libc_cfree(void *block);
