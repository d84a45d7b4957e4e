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

#include "hakmem/hakmem.h"

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
    if (align > 16 && bytes <= HAK_SLAB_BLOCK_BYTES_MAX) bytes = hak_round_up(bytes ? bytes : 1, align);
    return hak_good_size(bytes);
}

static void *block_new(size_t bytes, size_t align, const void *address, uintptr_t stack) {
    return align > 16 ? hak_front_aligned(align, bytes) : hak_malloc_from(bytes, address, stack);
}

HAK_EXPORT void *mallocx(size_t bytes, int flags) {
    if (flags & ZERO && bytes > HAK_SLAB_BLOCK_BYTES_MAX && align_of(flags) <= 16)
        return calloc(1, bytes > PTRDIFF_MAX ? bytes : hak_front_good(bytes)); /* a jump: of our caller; fresh pages are not written */
    void *block = block_new(bytes, align_of(flags), __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    return block && flags & ZERO ? memset(block, 0, hak_usable_size(block)) : block;
}

/* What the block has more than before is zeroed where that is asked for. On failure NULL, and the block is as it was. */
HAK_EXPORT void *rallocx(void *block, size_t bytes, int flags) {
    size_t before = hak_find("rallocx", block).bytes, align = align_of(flags);
    void *fresh;
    if (align <= 16) {
        fresh = hak_front_realloc("rallocx", block, bytes ? bytes : 1, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    } else if (((uintptr_t)block & (align - 1)) == 0 && bytes <= before && bytes > before / 2) {
        fresh = block;
    } else {
        fresh = hak_front_aligned(align, bytes);
        if (fresh) {
            memcpy(fresh, block, before < bytes ? before : bytes);
            free(block);
        }
    }
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
    return hak_find("sallocx", block).bytes;
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
