/* renamed.h - put before every test of a sanitizer build: there the runtime owns malloc, and ours has the
 * names of cmake/renamed.syms. Assembler names, so that the tests may still make macros of the plain ones.
 * operator new and delete stay the runtime's.
 */
#ifndef HAK_TEST_RENAMED_H
#define HAK_TEST_RENAMED_H

#include <stddef.h>

#ifdef __cplusplus
#define HAK_RENAMED(name) noexcept __asm__("hak_as_" #name)
extern "C" {
#else
#define HAK_RENAMED(name) __asm__("hak_as_" #name)
#endif
struct mallinfo;
struct mallinfo2;
void *malloc(size_t) HAK_RENAMED(malloc);
void *calloc(size_t, size_t) HAK_RENAMED(calloc);
void *realloc(void *, size_t) HAK_RENAMED(realloc);
void free(void *) HAK_RENAMED(free);
void cfree(void *) HAK_RENAMED(cfree);
void *reallocarray(void *, size_t, size_t) HAK_RENAMED(reallocarray);
int posix_memalign(void **, size_t, size_t) HAK_RENAMED(posix_memalign);
void *aligned_alloc(size_t, size_t) HAK_RENAMED(aligned_alloc);
void *memalign(size_t, size_t) HAK_RENAMED(memalign);
void *valloc(size_t) HAK_RENAMED(valloc);
void *pvalloc(size_t) HAK_RENAMED(pvalloc);
size_t malloc_usable_size(void *) HAK_RENAMED(malloc_usable_size);
void free_sized(void *, size_t) HAK_RENAMED(free_sized);
void free_aligned_sized(void *, size_t, size_t) HAK_RENAMED(free_aligned_sized);
int malloc_trim(size_t) HAK_RENAMED(malloc_trim);
int mallopt(int, int) HAK_RENAMED(mallopt);
void malloc_stats(void) HAK_RENAMED(malloc_stats);
struct mallinfo mallinfo(void) HAK_RENAMED(mallinfo);
struct mallinfo2 mallinfo2(void) HAK_RENAMED(mallinfo2);
void *__libc_malloc(size_t) HAK_RENAMED(__libc_malloc);
void *__libc_calloc(size_t, size_t) HAK_RENAMED(__libc_calloc);
void *__libc_realloc(void *, size_t) HAK_RENAMED(__libc_realloc);
void __libc_free(void *) HAK_RENAMED(__libc_free);
void *__libc_memalign(size_t, size_t) HAK_RENAMED(__libc_memalign);
void *__libc_valloc(size_t) HAK_RENAMED(__libc_valloc);
void *__libc_pvalloc(size_t) HAK_RENAMED(__libc_pvalloc);
#ifdef __cplusplus
}
#endif
#undef HAK_RENAMED
#endif
