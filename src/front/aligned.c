/* aligned.c - aligned blocks; usable size.
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

HAK_EXPORT size_t malloc_usable_size(void *block) { return hak_front_usable("malloc_usable_size", block); }

HAK_ALIAS(memalign) extern void *__libc_memalign(size_t align, size_t bytes);
HAK_ALIAS(valloc) extern void *__libc_valloc(size_t bytes);
HAK_ALIAS(pvalloc) extern void *__libc_pvalloc(size_t bytes);
HAK_ALIAS(posix_memalign) extern int __posix_memalign(void **result, size_t align, size_t bytes);
