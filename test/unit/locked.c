/* locked.c - what the library maps for itself in a program that locks all it maps (mlockall): it is resident, and locked, as it is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/os.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4 << 20, SKIPPED = 77 };

/* Under a small RLIMIT_MEMLOCK the first mapping is refused, which says nothing here. */
static bool may_lock_much(void) {
    if (mlockall(MCL_FUTURE) != 0) return false;
    void *much = mmap(NULL, 8 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (much != MAP_FAILED) munmap(much, 8 * BYTES);
    return much != MAP_FAILED;
}

static int in_a_child(void) {
    if (!may_lock_much()) return SKIPPED;
    char *first = hak_os_map(BYTES); /* tells that mappings are locked */
    if (!first) return 1;
    for (unsigned i = 0; i < 3; i++) {
        char *tables = hak_os_map(BYTES);
        if (!tables || hak_os_resident_pages(tables, BYTES) != 0) return 2;
        tables[BYTES / 2] = 1;
        if (hak_os_resident_pages(tables, BYTES) != 1) return 3;
        if (tables[0] != 0 || tables[BYTES - 1] != 0 || hak_os_unmap(tables, BYTES) != 0) return 4;
    }
    munlockall();
    char *free_again = hak_os_map(BYTES);
    if (!free_again || hak_os_resident_pages(free_again, BYTES) != 0) return 5;
    return madvise(free_again, hak_os_page_bytes(), MADV_DONTNEED) == 0 || madvise(hak_os_map(BYTES), hak_os_page_bytes(), MADV_DONTNEED) == 0 ? 0 : 6;
}

static void what_is_mapped_is_resident_as_it_is_touched(void **state) {
    (void)state;
    int status;
    if (getenv("HAK_TEST_EMULATED")) skip(); /* qemu-user says yes to mlockall, and locks nothing */
    pid_t child = fork();
    if (child == 0) _exit(in_a_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_mapped_is_resident_as_it_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
