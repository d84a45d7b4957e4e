/* policy_filled.c - what two runs filled is known; what one did not fill is not; programs that differ from run to run count on little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learn/policy_filled.h"
#include "learn/policy_text.h"

#include <string.h>

enum { C = 4, D = 8, BY_CHANCE = 0 };

static struct hak_policy policy;

static bool run(uint32_t c, uint32_t d, uint64_t draw) {
    uint32_t seen[HAK_CLASS_COUNT] = { 0 };
    seen[C] = c;
    seen[D] = d;
    return hak_policy_filled(&policy, seen, draw);
}
static uint32_t known(unsigned class_index) {
    struct hak_policy_known of;
    hak_policy_known_of(&policy, &of);
    return of.known[class_index];
}
static int begin(void **state) {
    (void)state;
    memset(&policy, 0, sizeof policy);
    return 0;
}

static void two_runs_make_it_known(void **state) {
    (void)state;
    assert_true(run(10, 3, 1));
    assert_int_equal(known(C), 0);
    assert_true(run(12, 2, 1));
    assert_int_equal(known(C), 10);
    assert_int_equal(known(D), 2);
    assert_false(run(10, 2, 1)); /* no news: the file is not written */
    assert_false(run(11, 2, 1));
    assert_int_equal(policy.fell, 0);
}

static void an_eighth_more_or_less_is_the_same(void **state) {
    (void)state;
    run(80, 0, 1);
    run(80, 0, 1);
    assert_int_equal(known(C), 80);
    assert_false(run(70, 0, 1));
    assert_int_equal(known(C), 80);
    assert_true(run(69, 0, 1));
    assert_int_equal(known(C), 69);
    assert_int_equal(policy.fell, 0); /* clearly less is a quarter */
}

static void less_counts_at_once_and_more_slowly_from_then_on(void **state) {
    (void)state;
    run(40, 4, 1);
    run(40, 4, 1);
    assert_true(run(4, 4, 1));
    assert_int_equal(known(C), 4);
    assert_int_equal(policy.fell, 1);
    assert_true(run(40, 4, BY_CHANCE)); /* the one before had 4 */
    assert_int_equal(known(C), 4);
    run(40, 4, 1); /* not drawn */
    assert_int_equal(known(C), 4);
    run(40, 4, BY_CHANCE);
    assert_int_equal(known(C), 4 + 9);
    for (unsigned i = 0; i < 20; i++) {
        run(40, 4, BY_CHANCE);
        run(2, 0, BY_CHANCE);
    }
    assert_int_equal(policy.fell, HAK_POLICY_FELL_MAX);
    assert_true(known(C) <= 2);
}

static void dear_ones_are_tried_seldom(void **state) {
    (void)state;
    assert_true(hak_policy_tries(&policy, false, 1));
    assert_true(hak_policy_tries(&policy, true, 1));
    assert_false(hak_policy_tried(&policy, false)); /* no news */
    assert_true(hak_policy_tried(&policy, true));
    assert_int_equal(policy.dear, 2);
    assert_true(hak_policy_tries(&policy, false, 4));
    assert_false(hak_policy_tries(&policy, false, 5));
    assert_false(hak_policy_tries(&policy, true, 4));
    for (unsigned i = 0; i < 9; i++) hak_policy_tried(&policy, true);
    assert_int_equal(policy.dear, HAK_POLICY_DEAR_MAX);
    assert_false(hak_policy_tried(&policy, true));
    assert_true(hak_policy_tried(&policy, false));
    assert_int_equal(policy.dear, HAK_POLICY_DEAR_MAX - 1);
    for (unsigned i = 0; i < 9; i++) hak_policy_tried(&policy, false);
    assert_int_equal(policy.dear, 0);
}

static void classes_of_other_versions_are_left_out(void **state) {
    (void)state;
    policy.filled_count = 2;
    policy.filled[0] = (struct hak_policy_filled){ 7, 100, 100 };
    policy.filled[1] = (struct hak_policy_filled){ hak_classes[D].block_bytes, 3, 3 };
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) assert_int_equal(known(c), c == D ? 3 : 0);
    assert_true(run(5, 3, 1));
    assert_int_equal(policy.filled_count, 2);
    assert_int_equal(policy.filled[0].block_bytes, hak_classes[C].block_bytes);
}

static void large_blocks_stand_in_front(void **state) {
    (void)state;
    uint32_t seen[HAK_CLASS_COUNT] = { 9 };
    assert_true(hak_policy_filled(&policy, seen, 1));
    assert_true(hak_policy_filled(&policy, seen, 1));
    assert_int_equal(known(0), 9);
    assert_int_equal(policy.filled[0].block_bytes, 0);
    seen[0] = 4;
    assert_true(hak_policy_filled(&policy, seen, 1));
    assert_int_equal(policy.fell, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(two_runs_make_it_known, begin),
        cmocka_unit_test_setup(an_eighth_more_or_less_is_the_same, begin),
        cmocka_unit_test_setup(less_counts_at_once_and_more_slowly_from_then_on, begin),
        cmocka_unit_test_setup(dear_ones_are_tried_seldom, begin),
        cmocka_unit_test_setup(classes_of_other_versions_are_left_out, begin),
        cmocka_unit_test_setup(large_blocks_stand_in_front, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
