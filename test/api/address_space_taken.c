/* address_space_taken.c - other mappings fill the address space: malloc gives what there is, then NULL, and each NULL takes no longer
 * than the next.
 *
 * Owns:   a child that takes all addresses, in pieces down to 2 MiB; a walk over the whole window for each malloc that fails would
 *         take it minutes.
 *
 * ctest: native
 */
#include "expect.h"

#include <sys/mman.h>

static void fill_and_allocate(void)
{
    enum { COUNT = 100000, SECONDS = 60 };
    size_t count = 0;
    alarm(SECONDS);
    free(malloc(10));
    for (size_t bytes = (size_t)1 << 46; bytes >= (size_t)2 << 20; bytes /= 2)
        while (mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            continue;
    for (int i = 0; i < COUNT; i++) {
        errno = 0;
        if (malloc(100) != NULL)
            count++;
        else
            EXPECT(errno == ENOMEM);
    }
    EXPECT_SAY(count >= 1000, "%zu blocks of 100 bytes", count);
}

static void a_failing_malloc_does_not_walk_the_window(void)
{
    pid_t child = fork();
    if (child == 0) {
        expect_failure_count = 0;
        fill_and_allocate();
        _exit(expect_failure_count != 0);
    }
    int status = child_wait(child, 90);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
}

int main(void)
{
    RUN(a_failing_malloc_does_not_walk_the_window);
    return EXPECT_RESULT();
}
