/* shim.h - the whole malloc family over glibc's, for the controls: each says what happens before, and how many bytes.
 *
 * Needs:     static void shim_before(void), and static size_t shim_bytes(size_t bytes), defined before it is included.
 * Why whole: a program that is linked with another allocator (Debian's redis-server) would mix the two.
 */
#ifndef HAKMEM_BENCH_SHIM_H
#define HAKMEM_BENCH_SHIM_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes), *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

/* What was asked for beside what is given: touched, so that it is resident. */
static void *shim_touched(void *block, size_t bytes) {
    if (block)
        for (size_t at = bytes; at < shim_bytes(bytes); at += 1024) ((volatile char *)block)[at] = 0;
    return block;
}

void *malloc(size_t bytes) {
    shim_before();
    return shim_touched(__libc_malloc(shim_bytes(bytes)), bytes);
}
void free(void *block) {
    shim_before();
    __libc_free(block);
}
void *calloc(size_t count, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    shim_before();
    return shim_touched(__libc_calloc(1, shim_bytes(all)), all);
}
void *realloc(void *block, size_t bytes) {
    shim_before();
    return shim_touched(__libc_realloc(block, shim_bytes(bytes)), bytes);
}
void *memalign(size_t alignment, size_t bytes) {
    shim_before();
    return shim_touched(__libc_memalign(alignment, shim_bytes(bytes)), bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1)) return EINVAL;
    int kept = errno;
    void *got = memalign(alignment, bytes);
    errno = kept;
    if (!got) return ENOMEM;
    *block = got;
    return 0;
}
size_t malloc_usable_size(void *block) {
    static size_t (*size)(void *block);
    if (!size) {
        void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        size = library ? (size_t (*)(void *))dlsym(library, "malloc_usable_size") : NULL;
    }
    return size ? size(block) : 0;
}

#endif
