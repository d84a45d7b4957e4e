/* limit.c - no span beyond the hard limit; the bound on free memory beside the soft one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "memory/large.h"
#include "memory/limit.h"
#include "memory/outside.h"
#include "memory/purge.h"

#include <string.h>

#define MIB (1 << 20)
enum { MIB_GRANULES = MIB / HAK_GRANULE_BYTES };

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static int lift(void **state) {
    (void)state;
    hak_options.limit_hard_mb = hak_options.limit_soft_mb = 0;
    return 0;
}

static size_t take(size_t count) {
    size_t dirty;
    return hak_span_take_in(NULL, count, 1, &dirty);
}

static void a_span_beyond_the_hard_limit_is_not_taken(void **state) {
    (void)state;
    hak_options.limit_hard_mb = 10;
    size_t first = take(9 * MIB_GRANULES), second = take(MIB_GRANULES), dirty;
    assert_true(first != HAK_NO_GRANULE && second != HAK_NO_GRANULE);
    assert_int_equal(hak_limit_taken(), 10 * MIB_GRANULES);
    assert_true(take(1) == HAK_NO_GRANULE);
    assert_true(hak_span_take_dense(4, HAK_GROWTH_SOME) == HAK_NO_GRANULE);
    assert_true(hak_span_take_dense(4, HAK_GROWTH_LITTLE) == HAK_NO_GRANULE);
    assert_true(take(SIZE_MAX / HAK_GRANULE_BYTES) == HAK_NO_GRANULE);
    assert_false(hak_span_extend(second, MIB_GRANULES, 1));
    size_t own = hak_span_take(1, 1, &dirty); /* for the library itself */
    assert_true(own != HAK_NO_GRANULE);
    hak_span_give(second, MIB_GRANULES, HAK_SPAN_DIRTY);
    assert_false(hak_span_take_again(second, MIB_GRANULES)); /* the own one is in its place */
    assert_true(hak_span_take_again(second, MIB_GRANULES - 1));
    assert_false(hak_span_extend(second, MIB_GRANULES - 1, 1));
    hak_span_give(second, MIB_GRANULES - 1, HAK_SPAN_DIRTY);
    hak_span_give(own, 1, HAK_SPAN_AS_IT_WAS);
    assert_true(take(MIB_GRANULES + 1) == HAK_NO_GRANULE);
    hak_options.limit_hard_mb = 0;
    second = take(MIB_GRANULES + 1); /* lifted */
    assert_true(second != HAK_NO_GRANULE);
    hak_options.limit_hard_mb = 5; /* and set below what is taken */
    assert_true(take(1) == HAK_NO_GRANULE);
    hak_span_give(second, MIB_GRANULES + 1, HAK_SPAN_AS_IT_WAS);
    assert_true(take(1) == HAK_NO_GRANULE);
    hak_span_give(first, 9 * MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(hak_limit_taken(), 0);
}

/* A block that grows by a move needs room for what it grows by. */
static void a_moved_block_takes_what_it_grows_by(void **state) {
    (void)state;
    bool zeroed;
    hak_options.limit_hard_mb = 10;
    char *block = hak_large_take(NULL, 6 * MIB, 1, 0, &zeroed), *wall = hak_large_take(NULL, MIB, 1, 0, &zeroed);
    assert_non_null(block);
    assert_non_null(wall);
    block[5 * MIB] = 7;
    struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    assert_false(hak_large_resize(record, 8 * MIB));
    assert_null(hak_large_move(record, 10 * MIB));
    char *moved = hak_large_move(record, 9 * MIB);
    assert_non_null(moved);
    assert_true(moved[5 * MIB] == 7);
    assert_int_equal(hak_limit_taken(), 10 * MIB_GRANULES);
    assert_null(hak_large_take(NULL, 65536, 1, 0, &zeroed));
    record = hak_granule_at(hak_granule_of(moved));
    assert_true(hak_large_resize(record, 2 * MIB)); /* it may always become smaller */
    assert_true(hak_large_give(record));
    assert_true(hak_large_give(hak_granule_at(hak_granule_of(wall))));
    assert_int_equal(hak_limit_taken(), 0);
}

static void what_lies_outside_the_window_counts(void **state) {
    (void)state;
    hak_options.limit_hard_mb = 4;
    char *first = hak_outside_take(3 * MIB + 1, 1);
    assert_non_null(first);
    assert_int_equal(hak_limit_taken(), 3 * MIB_GRANULES + 1);
    assert_null(hak_outside_take(MIB, 1));
    assert_true(take(MIB_GRANULES) == HAK_NO_GRANULE);
    assert_true(hak_outside_give(first));
    assert_int_equal(hak_limit_taken(), 0);
    first = hak_outside_take(4 * MIB, 1);
    assert_non_null(first);
    assert_true(hak_outside_give(first));
}

static bool refuse_unmap(enum hak_os_call call) { return call == HAK_OS_UNMAP; }

/* As where the kernel has no mapping left to split one into two. */
static void what_cannot_be_unmapped_gives_its_pages_back(void **state) {
    (void)state;
    char *block = hak_outside_take(4 * MIB, 1);
    assert_non_null(block);
    memset(block, 1, 4 * MIB);
    hak_os_fault = refuse_unmap;
    assert_true(hak_outside_give(block));
    hak_os_fault = NULL;
    assert_int_equal(hak_limit_taken(), 0);
    assert_false(hak_outside_give(block));
    assert_int_equal(hak_os_resident_pages(block, 4 * MIB), 0);
    assert_int_equal(hak_os_unmap(block, 4 * MIB), 0);
}

static void free_memory_is_bound_by_what_the_soft_limit_leaves(void **state) {
    (void)state;
    size_t dirty, used = hak_span_take(50 * MIB_GRANULES, 1, &dirty);
    uint64_t bound = hak_purge_bound();
    assert_int_equal(bound, 50 * MIB / 8);
    hak_options.limit_soft_mb = 100;
    assert_int_equal(hak_purge_bound(), bound);
    hak_options.limit_soft_mb = 52;
    assert_int_equal(hak_purge_bound(), 2 * MIB);
    hak_absent_note(MIB); /* of slabs, but not resident */
    assert_int_equal(hak_purge_bound(), 3 * MIB);
    hak_absent_note(-MIB);
    hak_store_relaxed(&hak_purge.keep_bytes, 200 * MIB);
    assert_int_equal(hak_purge_bound(), 2 * MIB);
    assert_int_equal(hak_purge_bound_halved(1), 2 * MIB);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_options.limit_soft_mb = 50;
    assert_int_equal(hak_purge_bound(), 0);
    hak_options.limit_soft_mb = 1;
    assert_int_equal(hak_purge_bound(), 0);
    assert_int_equal(hak_purge_goal(), 0);
    hak_options.limit_soft_mb = 0;
    assert_int_equal(hak_purge_bound(), bound);
    hak_span_give(used, 50 * MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
}

static void what_breaks_the_soft_limit_goes_back(void **state) {
    (void)state;
    enum { USED = 20 * MIB_GRANULES, FREED = 4 * MIB_GRANULES };
    size_t dirty, used = hak_span_take(USED, 1, &dirty), freed = hak_span_take(FREED, 1, &dirty);
    memset(hak_granule_address(freed), 1, (size_t)FREED << HAK_GRANULE_SHIFT);
    hak_span_give(freed, FREED, HAK_SPAN_DIRTY);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), 4 * MIB);
    hak_purge_enforce();
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), 4 * MIB);
    assert_true(hak_purge_keep());
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_options.limit_soft_mb = 23;
    assert_false(hak_purge_keep()); /* whoever comes back for it */
    hak_purge_enforce();
    assert_true(hak_load_relaxed(&hak_purge.free_bytes) <= 3 * MIB);
    hak_options.limit_soft_mb = 20;
    hak_purge_enforce();
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), 0);
    hak_span_give(used, USED, HAK_SPAN_AS_IT_WAS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_span_beyond_the_hard_limit_is_not_taken, lift),
        cmocka_unit_test_teardown(a_moved_block_takes_what_it_grows_by, lift),
        cmocka_unit_test_teardown(what_lies_outside_the_window_counts, lift),
        cmocka_unit_test_teardown(what_cannot_be_unmapped_gives_its_pages_back, lift),
        cmocka_unit_test_teardown(free_memory_is_bound_by_what_the_soft_limit_leaves, lift),
        cmocka_unit_test_teardown(what_breaks_the_soft_limit_goes_back, lift),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
