/* overlap.c - a negative control: an allocator that hands out a block twice. */
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
static _Thread_local void *last;
static _Thread_local size_t last_bytes;
static _Thread_local unsigned calls;

void *malloc(size_t bytes) {
    if (++calls % 8 == 0 && last && bytes <= last_bytes) return last;
    last = __libc_malloc(bytes);
    last_bytes = bytes;
    return last;
}
void free(void *block) { (void)block; } /* a double free of glibc's would end it, and that is another control */
