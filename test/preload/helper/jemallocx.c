/* jemallocx.c - linked with jemalloc, as redis 8 and MariaDB are: blocks from its own calls go to malloc's functions, and the other way.
 *
 * The same must come out with jemalloc itself; sizes alone are the allocator's. Says "fine" at its end.
 */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *mallocx(size_t bytes, int flags), *rallocx(void *block, size_t bytes, int flags);
size_t xallocx(void *block, size_t bytes, size_t extra, int flags), sallocx(const void *block, int flags), nallocx(size_t bytes, int flags);
void dallocx(void *block, int flags), sdallocx(void *block, size_t bytes, int flags);

enum { ZERO = 0x40, OWN_CACHE = 1 << 8 /* MALLOCX_TCACHE_NONE */ };

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "jemallocx.c:%d: %s (%zu bytes, 2^%d)\n", __LINE__, #x, bytes, lg), exit(1)))

static int is_all(const unsigned char *block, size_t bytes, int value) {
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != value) return 0;
    return 1;
}

int main(void) {
    size_t bytes = 1;
    for (int lg = 0; lg <= 21; lg += 3)
        for (bytes = 1; bytes < 3000000; bytes += bytes / 3 + 1) {
            unsigned char *dirty = malloc(bytes);
            memset(dirty, 9, bytes);
            free(dirty);
            unsigned char *block = mallocx(bytes, lg | ZERO | OWN_CACHE);
            CHECK(block && ((uintptr_t)block & (((size_t)1 << lg) - 1)) == 0);
            size_t usable = sallocx(block, 0);
            CHECK(usable >= bytes && usable == malloc_usable_size(block) && is_all(block, usable, 0));
            size_t foretold = nallocx(bytes, lg);
            CHECK(foretold >= bytes && foretold <= usable);
            memset(block, 5, usable);

            size_t more = bytes * 2 + 1, fewer = bytes / 5 + 1;
            block = rallocx(block, more, lg | ZERO);
            CHECK(block && ((uintptr_t)block & (((size_t)1 << lg) - 1)) == 0 && sallocx(block, 0) >= more);
            CHECK(is_all(block, usable < more ? usable : more, 5));
            CHECK(usable >= more || is_all(block + usable, more - usable, 0));
            usable = xallocx(block, more, more, ZERO);
            CHECK(usable >= more && usable == malloc_usable_size(block));
            CHECK(is_all(block, bytes, 5));
            memset(block, 6, usable);
            block = rallocx(block, fewer, lg);
            CHECK(block && ((uintptr_t)block & (((size_t)1 << lg) - 1)) == 0 && is_all(block, fewer, 6));
            usable = sallocx(block, 0);
            CHECK(usable >= fewer);
            switch (bytes % 4) {
            case 0: free(block); break;
            case 1: dallocx(block, 0); break;
            case 2: sdallocx(block, fewer, lg); break;
            default: block = realloc(block, more); CHECK(block && is_all(block, fewer, 6)); dallocx(block, OWN_CACHE);
            }
            block = malloc(bytes);
            memset(block, 7, bytes);
            block = rallocx(block, more, 0);
            CHECK(is_all(block, bytes, 7));
            dallocx(block, 0);
        }
    int lg = 12;
    for (bytes = (size_t)PTRDIFF_MAX + 1; bytes < SIZE_MAX; bytes = SIZE_MAX) {
        CHECK(mallocx(bytes, 0) == NULL && mallocx(bytes, lg) == NULL && mallocx(bytes, ZERO) == NULL && nallocx(bytes, 0) == 0);
        unsigned char *block = mallocx(100, 0);
        CHECK(rallocx(block, bytes, 0) == NULL && rallocx(block, bytes, lg) == NULL && xallocx(block, 100, bytes, 0) == sallocx(block, 0));
        free(block);
    }
    puts("fine");
    return 0;
}
