/* jemallocx.c - jemalloc's own calls: mallocx and its six relations, after jemalloc(3) of 5.3.
 *
 * A program that is linked with jemalloc (redis 8 of Debian 13, MariaDB, varnish) takes blocks from these as well, and gives them to
 * free and malloc_usable_size, which are ours once we are preloaded. So they are ours, too. Bits of `flags`: 0 to 5 the alignment's
 * logarithm, 6 zeroed; the arena and the thread's cache above them are not ours to choose. What asks or steers jemalloc itself
 * (mallctl, malloc_stats_print) stays its, and speaks of an allocator that is not used.
 *
 * Owns:      nothing.
 * Threads:   any.
 * Only in libhakmem.so: a static program has one of the two.
 */
#include "front/front.h"

#include "heap/secure.h"

#include "hakmem/hakmem.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_LG = 0x3f, ZERO = 0x40 };

void *mallocx(size_t bytes, int flags), *rallocx(void *block, size_t bytes, int flags);
size_t xallocx(void *block, size_t bytes, size_t extra, int flags), sallocx(const void *block, int flags), nallocx(size_t bytes, int flags);
void dallocx(void *block, int flags), sdallocx(void *block, size_t bytes, int flags);

static size_t align_of(int flags) { return (size_t)1 << (flags & ALIGN_LG); }

/* As the block would be. */
static size_t bytes_good(size_t bytes, size_t align) {
    if (bytes > PTRDIFF_MAX - align || align > PTRDIFF_MAX) return 0;
    if (align > 16 && bytes <= HAK_SLAB_BLOCK_BYTES_MAX && !hak_secure_is_on()) {
        size_t rounded = hak_front_aligned_bytes(align, bytes ? bytes : 1);
        bytes = rounded <= HAK_SLAB_BLOCK_BYTES_MAX ? rounded : hak_front_aligned_large(bytes);
    }
    if (align > 16 && hak_front_has_power(align, bytes) && !hak_secure_is_on()) return bytes;
    return hak_good_size(bytes);
}

static void *block_new(size_t bytes, size_t align, const void *address, uintptr_t stack) {
    if (bytes > HAK_SLAB_BLOCK_BYTES_MAX) bytes = hak_good_size(bytes); /* all of it is its, as nallocx() says */
    return align > 16 ? hak_front_aligned(align, bytes) : hak_malloc_from(bytes, address, stack);
}

/* Fresh pages are not written. */
static void *large_zeroed(size_t bytes, size_t align, const void *address, uintptr_t stack) {
    bool zeroed;
    bytes = hak_good_size(bytes);
    void *block = hak_front_large(bytes, align, address, stack, &zeroed);
    if (block && !zeroed) { /* all that it has: where one is guarded that is no more than was asked for, of the others it may be */
        struct hak_granule *record = hak_granule_at(hak_granule_of(block));
        hak_large_clear(record, hak_large_usable(record));
    }
    return block;
}

HAK_EXPORT void *mallocx(size_t bytes, int flags) {
    if (flags & ZERO && bytes > HAK_SLAB_BLOCK_BYTES_MAX && bytes_good(bytes, align_of(flags)))
        return large_zeroed(bytes, align_of(flags) <= 16 ? 1 : align_of(flags), __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    void *block = block_new(bytes, align_of(flags), __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    return block && flags & ZERO ? memset(block, 0, hak_usable_size(block)) : block;
}

/* As realloc does: in place, by moving pages, or copied; where there is no memory for a smaller block the old one serves. */
static void *aligned_again(struct hak_found found, void *block, size_t bytes, size_t align) {
    bool is_aligned = ((uintptr_t)block & (align - 1)) == 0;
    if (is_aligned && found.large && align <= HAK_GRANULE_BYTES && bytes > HAK_SLAB_BLOCK_BYTES_MAX && bytes <= PTRDIFF_MAX) {
        void *resized;
        if (hak_front_resize_or_refuse(found.record, block, found.bytes, bytes, &resized)) return resized;
    } else if (is_aligned && found.exact) {
        if (hak_secure_resize(block, found.record, bytes)) return block;
    } else if (is_aligned && bytes > found.bytes / 2 && (bytes <= found.bytes || hak_expand(block, bytes))) {
        return block;
    }
    int saved = errno;
    void *fresh = hak_front_aligned_beside(block, align, bytes);
    if (fresh) {
        memcpy(fresh, block, found.bytes < bytes ? found.bytes : bytes);
        free(block);
    } else if (is_aligned && bytes <= found.bytes) {
        errno = saved;
        hak_store_relaxed(&hak_realloc_stayed, 1);
        return block;
    }
    return fresh;
}

/* What the block has more than before is zeroed where that is asked for. On failure NULL, and the block is as it was. */
HAK_EXPORT void *rallocx(void *block, size_t bytes, int flags) {
    struct hak_found found = hak_find("rallocx", block);
    size_t before = found.bytes, align = align_of(flags);
    void *fresh;
    if (bytes > HAK_SLAB_BLOCK_BYTES_MAX) bytes = hak_good_size(bytes);
    if (align <= 16) fresh = hak_front_realloc("rallocx", block, bytes ? bytes : 1, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    else fresh = aligned_again(found, block, bytes, align);
    size_t now = fresh && flags & ZERO ? hak_usable_size(fresh) : 0, kept = before < bytes ? before : bytes;
    if (now > kept && fresh != block) memset((char *)fresh + kept, 0, now - kept);
    else if (now > before) memset((char *)fresh + before, 0, now - before);
    return fresh;
}

/* In place or not at all; returns what the block has then. */
HAK_EXPORT size_t xallocx(void *block, size_t bytes, size_t extra, int flags) {
    size_t before = hak_find("xallocx", block).bytes, wanted, now = 0;
    if (__builtin_add_overflow(bytes, extra, &wanted)) wanted = bytes;
    if (wanted > before) now = hak_expand(block, wanted);
    if (!now && bytes > before) now = hak_expand(block, bytes);
    if (!now) return before;
    if (flags & ZERO) memset((char *)block + before, 0, now - before);
    return now;
}

HAK_EXPORT size_t sallocx(const void *block, int flags) {
    (void)flags;
    return hak_front_usable("sallocx", block);
}

/* 0: it would fail. */
HAK_EXPORT size_t nallocx(size_t bytes, int flags) { return bytes_good(bytes, align_of(flags)); }

HAK_EXPORT void dallocx(void *block, int flags) {
    (void)flags;
    free(block);
}

/* Any size that the block was asked for or has is right, so that nothing is learnt from it. */
HAK_EXPORT void sdallocx(void *block, size_t bytes, int flags) {
    (void)bytes, (void)flags;
    free(block);
}
