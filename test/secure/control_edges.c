/* control_edges.c - a right program at the edges: the first block is an aligned one, sizes that would wrap, memory that is short, what nallocx promises,
 * blocks that wait where memory is short. */
#include "secure.h"

#include <errno.h>

size_t nallocx(size_t size, int flags);
void *mallocx(size_t size, int flags), *rallocx(void *ptr, size_t size, int flags);

static int check_failed;
#define CHECK(condition) ((condition) ? (void)0 : (void)(check_failed = check_failed ? check_failed : __LINE__))

int main(void)
{
    for (size_t align = 32; align <= 4096; align *= 2) { /* the process's first, if nothing before main allocated */
        void *block = NULL;
        CHECK(posix_memalign(&block, align, 2 * align) == 0 && (uintptr_t)block % align == 0);
        memset(block, 1, 2 * align);
        free_aligned_sized(block, align, 2 * align);
    }

    hak_heap_t *heap = hak_heap_new(0);
    for (size_t k = 1; k <= 20; k++) {
        CHECK(hak_heap_malloc(heap, (size_t)0 - k) == NULL && hak_heap_calloc(heap, 1, (size_t)0 - k) == NULL);
        CHECK(hak_heap_realloc(heap, NULL, (size_t)0 - k) == NULL && malloc((size_t)0 - k) == NULL && errno == ENOMEM);
    }
    hak_heap_t *small = hak_heap_new(1 << 20); /* pages that nobody may touch count in no limit */
    int count = 0;
    while (hak_heap_malloc(small, 65536) != NULL)
        count++;
    CHECK(count == 16);
    hak_heap_destroy(small);

    for (size_t bytes = 32700; bytes <= 32800; bytes++)
        free_sized(memset(malloc(bytes), 1, bytes), bytes);
    for (size_t bytes = 1; bytes < 40000; bytes += bytes / 7 + 1)
        for (int lg = 0; lg <= 12; lg++) {
            size_t promised = nallocx(bytes, lg);
            char *block = mallocx(bytes, lg);
            CHECK(promised >= bytes && malloc_usable_size(block) >= promised);
            memset(block, 1, promised);
            block = rallocx(block, bytes / 2 + 1, lg);
            CHECK(malloc_usable_size(block) >= bytes / 2 + 1);
            free(block);
        }

    /* memory is short: what waits is given back, a block that cannot move stays, and says what was asked for */
    char *shrinks = malloc(20000), *grows = malloc(17);
    memset(shrinks, 5, 20000);
    CHECK(hak_option_set("limit_hard_mb", "64") == 0);
    static const size_t sizes[] = {100, 1000, 4000, 30000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        void **list = NULL, **block;
        while ((block = malloc(sizes[k])) != NULL) {
            *block = list;
            list = block;
        }
        CHECK(list != NULL);
        block = list;
        list = *list;
        free(block);
        CHECK((block = malloc(sizes[k])) != NULL); /* whose room was given back just now */
        if (k == 0) {
            char *stays = realloc(shrinks, 90);
            CHECK(stays != NULL && stays[89] == 5);
            free_sized(stays, 90);
            if (malloc_usable_size(grows) < 21)
                grows = realloc(grows, 21);
            CHECK(grows != NULL);
        }
        free(block);
        while (list != NULL) {
            block = list;
            list = *list;
            free(block);
        }
    }
    return check_failed ? (fprintf(stderr, "line %d\n", check_failed), 1) : 0;
}
