/* spare.c - what a smaller bound on free memory would have cost, played in numbers, and what is chosen for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "memory/purge.h"
#include "rules/options.h"

#include <unistd.h>

enum { MIB = 1 << 20 };

/* The bound is max(6 MiB, an eighth of nothing): 6, 3, 1.5 and 0.75 MiB. Above it, free memory falls to its half. */
static void each_bound_keeps_its_share(void **state) {
    (void)state;
    uint64_t before[HAK_SPARE_ROWS];
    assert_int_equal(hak_purge_bound(), 6 * MIB);
    assert_int_equal(hak_purge_bound_halved(3), 6 * MIB / 8);
    for (unsigned i = 0; i < HAK_SPARE_ROWS; i++) before[i] = hak_spare_missed(i);
    for (unsigned i = 0; i < 4; i++) hak_spare_note(MIB);
    hak_spare_note(-4 * MIB);
    assert_int_equal(hak_spare_missed(0) - before[0], 0);                 /* all 4 are there */
    assert_int_equal(hak_spare_missed(1) - before[1], 4 * MIB - 3 * MIB / 2); /* 1 2 3, then 1.5 */
    assert_int_equal(hak_spare_missed(2) - before[2], 4 * MIB - 3 * MIB / 4); /* 1; 2, which is too much: 0.75; 1.75: 0.75; again */
    assert_int_equal(hak_spare_missed(3) - before[3], 4 * MIB - 3 * MIB / 8); /* each of them breaks it */
}

static void what_costs_too_much_is_not_chosen(void **state) {
    (void)state;
    /* missed by now: 0, 2.5, 3.25 and 4.25 MiB; at 1,000 ns for a page 0, 0.64, 0.83 and 1.09 ms */
    assert_int_equal(hak_spare_choose(0, 240 * 1000000, 1000, 200), 1);  /* 1.2 ms may go; one more at a time */
    assert_int_equal(hak_spare_choose(1, 240 * 1000000, 1000, 200), 2);
    assert_int_equal(hak_spare_choose(2, 240 * 1000000, 1000, 200), 3);
    assert_int_equal(hak_spare_choose(3, 240 * 1000000, 1000, 200), 3);
    assert_int_equal(hak_spare_choose(3, 100 * 1000000, 1000, 200), 0);  /* 0.5 ms may go: back at once */
    assert_int_equal(hak_spare_choose(0, 100 * 1000000, 1000, 200), 0);
}

static void nothing_is_known_of_a_bound_that_was_not_reached(void **state) {
    (void)state;
    assert_int_equal(hak_spare_choose(0, 1000000000, 1000, 200), 0);
    hak_spare_note(MIB);
    hak_spare_note(-MIB);
    assert_int_equal(hak_spare_choose(0, 1000000000, 1000, 200), 0); /* 3 MiB would have been enough, and 6 not better */
    assert_int_equal(hak_spare_choose(2, 1000000000, 1000, 200), 3); /* this one was broken, and cheap */
}

static void what_went_back_is_not_used_again(void **state) {
    (void)state;
    uint64_t before = hak_spare_missed(3);
    hak_spare_start();
    hak_spare_pass_by(2 * MIB);
    hak_spare_note(-MIB);
    hak_spare_note(-MIB);
    assert_int_equal(hak_spare_missed(3), before);
    hak_spare_note(-MIB);
    assert_true(hak_spare_missed(3) > before);
}

/* Without halvings free memory stays above the bound for the grace; with them it does not. */
static void the_first_row_has_the_grace(void **state) {
    (void)state;
    enum { SHORT_MS = 20, LONG_MS = 60000, PAST_MS = 80 };
    uint64_t first = hak_spare_missed(0), second = hak_spare_missed(1);
    hak_options.free_grace_ms = LONG_MS;
    hak_spare_note(16 * MIB);
    hak_spare_note(-16 * MIB);
    assert_int_equal(hak_spare_missed(0), first);
    assert_int_equal(hak_spare_missed(1), second + 16 * MIB - 3 * MIB / 2);
    hak_spare_note(80 * MIB); /* more than 64 MiB above it */
    hak_spare_note(-80 * MIB);
    assert_int_equal(hak_spare_missed(0), first + 77 * MIB);
    hak_spare_note(16 * MIB); /* and the next has none, for two seconds */
    hak_spare_note(-16 * MIB);
    assert_int_equal(hak_spare_missed(0), first + 90 * MIB);
    usleep(2100 * 1000);
    hak_options.free_grace_ms = SHORT_MS;
    hak_spare_note(16 * MIB);
    usleep(PAST_MS * 1000);
    hak_spare_note(-16 * MIB);
    assert_int_equal(hak_spare_missed(0), first + 103 * MIB);
}

static void keep_is_kept_under_each_bound(void **state) {
    (void)state;
    hak_store_relaxed(&hak_purge.keep_bytes, 64 * MIB);
    assert_int_equal(hak_purge_bound_halved(3), 64 * MIB);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
}

/* What was played was too cheap where threads keep memory for themselves: what was paid counts. */
static void what_it_really_cost_takes_it_back(void **state) {
    (void)state;
    uint64_t cpu_ns = 200 * 1000000; /* 1 ms may go */
    struct hak_spare_paid none = { 0, 0, false }, pages = { 600, 0, false }, half = { 300, 0, false }, calls = { 0, 101, true }, alone = { 0, 101, false };
    assert_int_equal(hak_spare_check(0, 1, &pages, cpu_ns, 2000, 200), 1); /* nothing was halved: it is not its price */
    assert_int_equal(hak_spare_check(2, 3, &none, cpu_ns, 2000, 200), 3);
    assert_int_equal(hak_spare_check(2, 3, &half, cpu_ns, 2000, 200), 2); /* one more would be too dear */
    assert_int_equal(hak_spare_check(2, 2, &half, cpu_ns, 2000, 200), 2);
    assert_int_equal(hak_spare_check(2, 3, &pages, cpu_ns, 2000, 200), 1);
    assert_int_equal(hak_spare_check(2, 0, &pages, cpu_ns, 2000, 200), 0);
    assert_int_equal(hak_spare_check(3, 3, &calls, cpu_ns, 2000, 200), 2);
    assert_int_equal(hak_spare_check(3, 3, &alone, cpu_ns, 2000, 200), 3);
}

/* A forked child inherits the parent's sums, and they are not its price. */
static void a_child_has_paid_nothing_yet(void **state) {
    (void)state;
    hak_add(&hak_purge.return_calls, 500);
    hak_add(&hak_purge.retouched_bytes, 8 * MIB);
    struct hak_spare_paid paid = hak_spare_paid(0);
    assert_true(paid.calls >= 500 && paid.pages >= 2048 && !paid.is_parallel);
    hak_spare_forget();
    paid = hak_spare_paid(UINT64_C(1) << 60);
    assert_true(paid.calls == 0 && paid.pages == 0 && paid.is_parallel);
}

static void the_halvings_act(void **state) {
    (void)state;
    hak_store_relaxed(&hak_purge.halvings, 2);
    assert_int_equal(hak_purge_bound(), 6 * MIB / 4);
    assert_true(hak_purge_over(2 * MIB));
    hak_store_relaxed(&hak_purge.halvings, 0);
    assert_false(hak_purge_over(2 * MIB));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_of_a_bound_that_was_not_reached), /* first: rows are never emptied */
        cmocka_unit_test(each_bound_keeps_its_share),
        cmocka_unit_test(what_costs_too_much_is_not_chosen),
        cmocka_unit_test(what_went_back_is_not_used_again),
        cmocka_unit_test(the_first_row_has_the_grace),
        cmocka_unit_test(keep_is_kept_under_each_bound),
        cmocka_unit_test(the_halvings_act),
        cmocka_unit_test(what_it_really_cost_takes_it_back),
        cmocka_unit_test(a_child_has_paid_nothing_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
