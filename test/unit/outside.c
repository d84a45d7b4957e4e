/* outside.c - blocks past the window: known while they live, each a mapping of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "memory/outside.h"
#include "os/os.h"

#include <sys/mman.h>

enum { MANY = 5000 };
static char *blocks[MANY];

static bool refuse_unmap(enum hak_os_call call) { return call == HAK_OS_UNMAP; }
static bool refuse_fresh(enum hak_os_call call) { return call == HAK_OS_FRESH; }

static void a_block_is_zero_aligned_and_known(void **state) {
    (void)state;
    for (size_t align = 1; align <= (size_t)64 << 20; align *= 4) {
        for (size_t bytes = 1; bytes < (size_t)40 << 20; bytes = bytes * 7 + 1) {
            char *block = hak_outside_take(bytes, align);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % align, 0);
            size_t usable = hak_outside_bytes(block);
            assert_true(usable >= bytes && usable < bytes + hak_os_page_bytes());
            assert_true(block[0] == 0 && block[usable - 1] == 0);
            block[0] = block[usable - 1] = 1;
            assert_int_equal(hak_outside_bytes(block + 16), 0);
            assert_false(hak_outside_give(block + 16));
            assert_true(hak_outside_give(block));
            assert_int_equal(hak_outside_bytes(block), 0);
            assert_false(hak_outside_give(block));
        }
    }
}

static void what_is_none_of_ours_is_refused(void **state) {
    (void)state;
    int here;
    assert_int_equal(hak_outside_bytes(NULL), 0);
    assert_int_equal(hak_outside_bytes((void *)1), 0);
    assert_int_equal(hak_outside_bytes(&here), 0);
    assert_false(hak_outside_give(&here));
    assert_null(hak_outside_take(PTRDIFF_MAX, 1));
    assert_null(hak_outside_take(100, (size_t)1 << 62));
}

static void there_is_an_end_to_them_and_all_stay_known(void **state) {
    (void)state;
    unsigned count = 0;
    while (count < MANY && (blocks[count] = hak_outside_take(65536 + count, 1)) != NULL) blocks[count++][0] = 7;
    assert_true(count > 1000 && count < MANY);
    for (unsigned i = 0; i < count; i++) REQUIRE(hak_outside_bytes(blocks[i]) >= 65536 + i && blocks[i][0] == 7);
    for (unsigned i = 0; i < count; i += 2) REQUIRE(hak_outside_give(blocks[i]));
    for (unsigned i = 0; i < count; i++) REQUIRE((hak_outside_bytes(blocks[i]) != 0) == (i % 2 == 1));
    for (unsigned i = 1; i < count; i += 2) REQUIRE(hak_outside_give(blocks[i]));
    char *block = hak_outside_take(100, 1); /* and the rows serve again */
    assert_non_null(block);
    assert_true(hak_outside_give(block));
}

static void a_refusing_kernel_is_survived(void **state) {
    (void)state;
    hak_os_fault = refuse_fresh;
    assert_null(hak_outside_take(100000, 1));
    hak_os_fault = refuse_unmap;
    char *block = hak_outside_take(100000, 1 << 20);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % (1 << 20), 0);
    assert_true(hak_outside_give(block));
    assert_false(hak_outside_give(block));
    hak_os_fault = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_zero_aligned_and_known),
        cmocka_unit_test(what_is_none_of_ours_is_refused),
        cmocka_unit_test(there_is_an_end_to_them_and_all_stay_known),
        cmocka_unit_test(a_refusing_kernel_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
