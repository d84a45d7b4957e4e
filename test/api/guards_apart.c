/* guards_apart.c - guarded blocks do not lie where the library's window may come to.
 *
 * The program has mapped down to the window when guards are turned on; the heap then grows past where they would have been, and the free
 * of a guarded block was called misuse.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <sys/mman.h>

#define GIB ((uintptr_t)1 << 30)
enum { MAPPED_BYTES = 64 << 20, MAPPED_MAX = 128, TRIES = 3000000, GROWN_MAX = 1100 };

static void a_guarded_block_can_be_freed_when_the_heap_has_grown(void)
{
    char *first = (char *)malloc(40000);
    uintptr_t base = (uintptr_t)first & ~(uintptr_t)((4 << 20) - 1), end = base + GIB;
    for (int i = 0; i < MAPPED_MAX; i++) {
        void *mapped = mmap(NULL, MAPPED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED || (uintptr_t)mapped <= end)
            break;
    }
    REQUIRE(hak_option_set("sample_bytes", "64") == 0 && hak_option_set("guard", "1") == 0);
    usleep(30000); /* a visit sees it 20 ms later at the latest */
    char *guarded = NULL, *block;
    size_t in_window = 0;
    for (int i = 0; i < TRIES && !guarded; i++) { /* guarded blocks lie apart from all others */
        block = (char *)malloc(100);
        if ((uintptr_t)block - base >= MAPPED_BYTES)
            guarded = block;
        else
            free(block);
    }
    REQUIRE(guarded != NULL);
    memset(guarded, 1, 100);
    in_window = (uintptr_t)guarded - base < GIB;
    EXPECT(!in_window);
    REQUIRE(hak_option_set("guard", "0") == 0);
    int grown = 0;
    while (grown < GROWN_MAX && malloc(1 << 20) != NULL) /* to the window's end */
        grown++;
    EXPECT_SAY(grown > 900, "%d MiB", grown);
    free(guarded);
    free(first);
}

int main(int argc, char **argv)
{
    if (!getenv("HAKMEM_REGION_GB")) {
        setenv("HAKMEM_REGION_GB", "1", 1);
        setenv("HAKMEM_GUARD_KB", "1000000", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    (void)argc;
    RUN(a_guarded_block_can_be_freed_when_the_heap_has_grown);
    return EXPECT_RESULT();
}
