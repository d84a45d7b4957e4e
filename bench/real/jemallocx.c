/* jemallocx.c - preloaded behind an allocator that has no mallocx: jemalloc's own calls, made of malloc's.
 *
 * Why:       redis 8 of Debian 13 takes blocks from mallocx and gives them to free and malloc_usable_size. Those are the
 *            preloaded allocator's; mallocx would be jemalloc's, and each would meet the other's blocks. Whoever has
 *            mallocx of its own (jemalloc, HAKMEM) stands in front, and nothing of this is called.
 * Owns:      nothing.
 */
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_LG = 0x3f, ZERO = 0x40 };

void *mallocx(size_t bytes, int flags) {
    size_t align = (size_t)1 << (flags & ALIGN_LG);
    void *block = NULL;
    if (align > 16) return posix_memalign(&block, align, bytes) ? NULL : flags & ZERO ? memset(block, 0, bytes) : block;
    return flags & ZERO ? calloc(1, bytes) : malloc(bytes);
}

void *rallocx(void *block, size_t bytes, int flags) {
    size_t align = (size_t)1 << (flags & ALIGN_LG), before = malloc_usable_size(block);
    if (align <= 16 && !(flags & ZERO)) return realloc(block, bytes ? bytes : 1);
    void *fresh = mallocx(bytes, flags);
    if (fresh) memcpy(fresh, block, before < bytes ? before : bytes), free(block);
    return fresh;
}

size_t sallocx(const void *block, int flags) { return (void)flags, malloc_usable_size((void *)block); }
size_t xallocx(void *block, size_t bytes, size_t extra, int flags) { return (void)bytes, (void)extra, sallocx(block, flags); }
size_t nallocx(size_t bytes, int flags) { return (void)flags, (bytes + 15) & ~(size_t)15; }
void dallocx(void *block, int flags) { (void)flags, free(block); }
void sdallocx(void *block, size_t bytes, int flags) { (void)bytes, (void)flags, free(block); }
