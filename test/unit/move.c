/* move.c - pages that are moved instead of copied: all of a block, or nothing of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/os.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGES = 64 };

static char *pages_of(char value, size_t bytes) {
    char *pages = hak_os_map(bytes);
    assert_non_null(pages);
    memset(pages, value, bytes);
    return pages;
}

static void all_hold(const char *pages, char value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) assert_int_equal(pages[i], value);
}

static void one_mapping_moves_as_a_whole(void **state) {
    (void)state;
    size_t bytes = PAGES * hak_os_page_bytes();
    char *from = pages_of(7, bytes), *to = pages_of(1, bytes);
    int result = hak_os_move(from, to, bytes);
    all_hold(result == 0 ? to : from, 7, bytes);
    if (result == 0) all_hold(from, 0, bytes);
    hak_os_unmap(from, bytes);
}

static unsigned moves_left;
static bool refuse_later(enum hak_os_call call) { return call == HAK_OS_MOVE && moves_left-- == 0; }

/* Linux 6.17 moves them one by one when it is asked for all, and leaves what it has moved when a later one fails. */
static void several_mappings_move_together_or_not_at_all(void **state) {
    (void)state;
    size_t page = hak_os_page_bytes(), bytes = PAGES * page;
    for (unsigned allowed = 0; allowed < 6; allowed++) {
        char *from = pages_of(7, bytes), *to = pages_of(1, bytes);
        assert_int_equal(madvise(from + 10 * page, page, MADV_DONTDUMP), 0);
        assert_int_equal(madvise(from + 30 * page, 5 * page, MADV_DONTDUMP), 0);
        moves_left = allowed;
        hak_os_fault = refuse_later;
        int result = hak_os_move(from, to, bytes);
        hak_os_fault = NULL;
        if (allowed == 0) assert_int_not_equal(result, 0);
        all_hold(result == 0 ? to : from, 7, bytes);
        hak_os_unmap(from, bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_mapping_moves_as_a_whole),
        cmocka_unit_test(several_mappings_move_together_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
