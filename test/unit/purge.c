/* purge.c - free memory stays under its bound; what the bound is; which pages go first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/free_memory.h"

#include <hakmem/hakmem.h>

#include "base/word.h"
#include "memory/chunk.h"
#include "memory/limit.h"
#include "memory/purge.h"
#include "rules/options.h"

#include <string.h>

/* Another thread began the sums anew, by a clock that it read later: milliseconds below 0, and their number 0 ended the program by SIGFPE. */
static void sums_may_have_begun_later_than_now(void **state) {
    (void)state;
    enum { LATER_MS = 40 };
    for (unsigned later = 0; later < LATER_MS; later++) {
        keep_set(0);
        hak_store_relaxed(&hak_purge.enforced_bytes, 2 * MIB);
        uint64_t now = hak_os_clock_ms();
        hak_store_relaxed(&hak_purge.judged_since_ms, now + later);
        hak_purge_note_retouch(MIB, hak_purge_stamp(false));
    }
    keep_set(0);
}

static void the_bound_is_the_largest_of_three(void **state) {
    (void)state;
    size_t dirty, count = 4096, granule = hak_span_take(count, 1, &dirty); /* 256 MiB */
    keep_set(0);
    assert_int_equal(hak_options.free_share, 8);
    hak_options.free_max_mb = 1;
    assert_int_equal(hak_purge_bound(), count * HAK_GRANULE_BYTES / 8);
    hak_absent_note(128 * MIB); /* of slabs, but not resident */
    assert_int_equal(hak_purge_bound(), (count * HAK_GRANULE_BYTES - 128 * MIB) / 8);
    hak_absent_note(-128 * MIB);
    hak_options.free_max_mb = 100;
    assert_int_equal(hak_purge_bound(), 100 * MIB);
    keep_set(200 * MIB);
    assert_int_equal(hak_purge_bound(), 200 * MIB);
    assert_false(hak_purge_over(200 * MIB - free_now()));
    assert_true(hak_purge_over(200 * MIB - free_now() + 1));
    keep_set(0);
    hak_options.free_max_mb = 6;
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(hak_purge_bound(), 6 * MIB);
}

static void the_highest_spans_go_first_and_no_more_than_must(void **state) {
    (void)state;
    enum { COUNT = 3 * HAK_CHUNK_GRANULES };
    size_t dirty, granule = hak_span_take(COUNT, 1, &dirty);
    hak_purge_spans(0);
    int64_t before = free_now();
    memset(hak_granule_address(granule), 1, (size_t)COUNT * HAK_GRANULE_BYTES);
    hak_span_give(granule, COUNT, HAK_SPAN_DIRTY);
    assert_int_equal(free_now() - before, COUNT * HAK_GRANULE_BYTES);
    for (unsigned left = COUNT; left > 0; left -= left > 7 ? 7 : left) {
        size_t goal = (size_t)left * HAK_GRANULE_BYTES;
        hak_purge_spans((uint64_t)before + goal);
        assert_int_equal(free_now() - before, goal);
        for (unsigned i = 0; i < COUNT; i++) {
            bool resident = hak_load_relaxed(&hak_chunk_at((granule + i) / 64)->dirty) >> (granule + i) % 64 & 1;
            REQUIRE(resident == (i < left));
            REQUIRE(hak_granule_address(granule + i)[77] == (i < left));
        }
    }
    assert_int_equal(hak_purge_spans((uint64_t)free_now()), 0);
}

/* Half of each granule is there: twice as many go back for the same bytes, only those are counted, and touching them again is as much. */
static void of_a_partial_granule_goes_back_what_is_there(void **state) {
    (void)state;
    enum { COUNT = 16 };
    unsigned pages = HAK_GRANULE_BYTES >> hak_region.page_shift;
    if (pages == 1) skip();
    hak_purge_spans(0);
    keep_set(0);
    size_t dirty, granule = hak_span_take(COUNT, 1, &dirty);
    for (unsigned i = 0; i < COUNT; i++) {
        memset(hak_granule_address(granule + i), 1, HAK_GRANULE_BYTES / 2);
        hak_granule_leave_absent(granule + i, (1u << pages) - (1u << pages / 2));
    }
    int64_t before = free_now();
    hak_span_give(granule, COUNT, HAK_SPAN_DIRTY);
    assert_int_equal(free_now() - before, COUNT * HAK_GRANULE_BYTES / 2);
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
    assert_int_equal(hak_purge_spans((uint64_t)before + 4 * HAK_GRANULE_BYTES), 4 * HAK_GRANULE_BYTES);
    assert_int_equal(free_now() - before, 4 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes) - returned, 4 * HAK_GRANULE_BYTES);
    for (unsigned i = 0; i < COUNT; i++) assert_int_equal(*hak_granule_address(granule + i), i < COUNT / 2);
    assert_int_equal(hak_span_take(COUNT, 1, &dirty), granule);
    assert_int_equal(dirty, COUNT / 2);
    hak_span_give(granule, COUNT, HAK_SPAN_CLEAN);
    hak_purge_spans(0);
}

static void what_is_used_is_not_returned(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(64, 1, &dirty);
    memset(hak_granule_address(granule), 3, 64 * (size_t)HAK_GRANULE_BYTES);
    for (unsigned i = 0; i < 64; i += 2) hak_span_give(granule + i, 1, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
    for (unsigned i = 0; i < 64; i++) REQUIRE(hak_granule_address(granule + i)[5] == (i % 2 ? 3 : 0));
    for (unsigned i = 1; i < 64; i += 2) hak_span_give(granule + i, 1, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
    assert_int_equal(free_now(), 0);
}

static void excess_is_returned_down_to_half_the_bound(void **state) {
    (void)state;
    keep_set(0);
    size_t dirty, count = 20 * MIB / HAK_GRANULE_BYTES, granule = hak_span_take(count, 1, &dirty);
    memset(hak_granule_address(granule), 1, count * HAK_GRANULE_BYTES);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    assert_true(hak_purge_over(0));
    hak_purge_enforce();
    assert_false(hak_purge_over(0));
    assert_int_equal(free_now(), 3 * MIB);
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
    hak_purge_enforce(); /* nothing to do */
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), returned);
    hak_purge_spans(0);
}

static void only_what_stayed_free_goes_with_a_sweep(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(10, 1, &dirty), number = granule / HAK_CHUNK_GRANULES;
    hak_purge_chunk(number, true);
    hak_span_give(granule, 5, HAK_SPAN_DIRTY);
    assert_int_equal(hak_purge_chunk(number, false), 0);
    hak_span_give(granule + 5, 5, HAK_SPAN_DIRTY);
    assert_int_equal(hak_purge_chunk(number, false), 5 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_purge_chunk(number, false), 5 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_purge_chunk(number, false), 0);
}

/* Frees much, returns it, and takes it again at once. */
static void memory_come_and_go(size_t bytes) {
    size_t dirty, count = bytes / HAK_GRANULE_BYTES, granule = hak_span_take(count, 1, &dirty);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    hak_purge_excess();
}

static void windows_pass(unsigned count) { /* of two seconds each, without waiting for them */
    for (unsigned i = 0; i < count; i++) {
        hak_store_relaxed(&hak_purge.keep_ms, hak_os_clock_ms() - 2500);
        hak_purge_excess();
    }
}

static void keep_rises_at_the_first_return_that_is_touched_again_at_once(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    uint64_t before = hak_load_relaxed(&hak_purge.retouched_bytes);
    for (unsigned i = 0; i < 3; i++) memory_come_and_go(64 * MIB); /* returned, touched again, kept */
    uint64_t keep = hak_load_relaxed(&hak_purge.keep_bytes);
    assert_true(hak_load_relaxed(&hak_purge.retouched_bytes) > before);
    assert_true(keep >= 64 * MIB); /* so that it is returned no more */
    assert_true(keep <= 256 * MIB); /* and not without end */
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
    for (unsigned i = 0; i < 10; i++) memory_come_and_go(32 * MIB);
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), returned);
}

static void what_comes_and_goes_stays_and_what_only_lies_there_goes(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    for (unsigned i = 0; i < 3; i++) memory_come_and_go(64 * MIB);
    for (unsigned i = 0; i < 5; i++) {
        windows_pass(1);
        memory_come_and_go(64 * MIB);
        assert_true(hak_load_relaxed(&hak_purge.keep_bytes) >= 64 * MIB);
    }
    for (unsigned i = 0; i < 40; i++) {
        uint64_t last = hak_load_relaxed(&hak_purge.keep_bytes);
        windows_pass(1);
        if (i > 0) assert_true(hak_load_relaxed(&hak_purge.keep_bytes) <= (last < MIB ? 0 : last / 2));
    }
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 0);
    hak_purge_spans(0);
}

/* A program whose sizes drift frees for good while it takes: the third that is touched again does not tell of the rest. It held 200 MB beside
 * 64 that were live. */
static void what_is_never_drawn_is_not_kept(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    int64_t before = free_now();
    for (unsigned round = 0; round < 40; round++) {
        hak_free_note(8 * MIB, 0);
        hak_add(&hak_purge.free_bytes, -(int64_t)(5 * MIB)); /* as purge.c counts what goes back */
        hak_add(&hak_purge.judged_returned_bytes, 5 * MIB);
        hak_add(&hak_purge.enforced_bytes, 5 * MIB);
        hak_purge_note_retouch(2 * MIB, hak_purge_stamp(false));
    }
    assert_int_equal(hak_load_relaxed(&hak_purge.drawn_bytes), 2 * MIB); /* though 240 were free, had none gone back */
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 2 * MIB + MIB / 2);
    hak_add(&hak_purge.free_bytes, before - free_now());
    keep_set(0);
}

/* Not what costs less than a hundredth of a processor's time, and by what it costs no more than so many times what is held. */
static void what_costs_little_is_not_kept(void **state) {
    (void)state;
    enum { SECONDS = 10 };
    hak_purge_spans(0);
    for (unsigned quick = 0; quick < 2; quick++) {
        keep_set(0);
        hak_store_relaxed(&hak_purge.judged_since_ms, hak_os_clock_ms() - (quick ? 1000 : SECONDS * 1000));
        hak_store_relaxed(&hak_purge.drawn_bytes, 100 * MIB);
        hak_add(&hak_purge.judged_returned_bytes, 200 * MIB);
        hak_add(&hak_purge.enforced_bytes, 200 * MIB);
        hak_purge_note_retouch(100 * MIB, hak_purge_stamp(false));
        uint64_t keep = hak_load_relaxed(&hak_purge.keep_bytes);
        if (quick) assert_in_range(keep, 8 * MIB, 48 * MIB); /* for 4.2 hundredths, not 125 */
        else assert_int_equal(keep, 0);
    }
    keep_set(0);
}

/* A burst each second: what went back at its end is touched again a little more than a second later. It took every burst's faults. */
static void what_comes_back_after_more_than_a_second_is_kept_if_it_is_much(void **state) {
    (void)state;
    struct { uint32_t age_ms; unsigned sums_ms, again; bool is_kept; } it[] = {
        { 1400, 1400, 100 * MIB, true },  { 1400, 0, 100 * MIB, true },
        { 1400, 0, 20 * MIB, false }, /* the sums are young, its absence is not */
        { 400, 0, 20 * MIB, true },       { 1400, 6000, 100 * MIB, false },
        { 2000, 1400, 100 * MIB, false }, /* an idle program's memory is the kernel's after two seconds */
    };
    hak_purge_spans(0);
    for (unsigned i = 0; i < sizeof it / sizeof *it; i++) {
        keep_set(0);
        hak_store_relaxed(&hak_purge.judged_since_ms, hak_os_clock_ms() - it[i].sums_ms);
        hak_store_relaxed(&hak_purge.drawn_bytes, it[i].again);
        hak_add(&hak_purge.judged_returned_bytes, 100 * MIB);
        hak_add(&hak_purge.enforced_bytes, it[i].again);
        for (unsigned part = 0; part < 4; part++) hak_purge_note_retouch(it[i].again / 4, hak_purge_stamp(false) - it[i].age_ms);
        assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes) > 0, it[i].is_kept);
    }
    keep_set(0);
}

/* Classes that take turns want their own pages back, while as much is free as ever. */
static void keep_rises_by_half_when_three_fifths_are_touched_again(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    uint64_t bound = hak_purge_bound();
    for (unsigned round = 0; round < 4; round++) {
        hak_add(&hak_purge.judged_returned_bytes, bound);
        hak_add(&hak_purge.enforced_bytes, bound);
        for (unsigned fifth = 1; fifth <= 3; fifth++) {
            hak_purge_note_retouch(bound / 5 - 4096 * (fifth == 3), hak_purge_stamp(false));
            assert_int_equal(hak_purge_bound(), bound);
        }
        hak_purge_note_retouch(8192, hak_purge_stamp(false));
        bound += bound / 2;
        assert_int_equal(hak_purge_bound(), bound);
        assert_int_equal(hak_load_relaxed(&hak_purge.enforced_bytes), 0); /* the next rise is judged by what goes back from now on */
        hak_store_relaxed(&hak_purge.free_peak_bytes, free_now());
        hak_store_relaxed(&hak_purge.drawn_bytes, 0);
    }
    hak_add(&hak_purge.enforced_bytes, bound);
    hak_purge_note_retouch(bound, hak_purge_stamp(false));
    assert_int_equal(hak_purge_bound(), 32 * MIB); /* little is in use here */
    keep_set(0);
}

static int64_t given_rest(void) {
    return hak_load_relaxed(&hak_purge.given_bytes) - hak_load_relaxed(&hak_purge.settled_bytes);
}

/* What strangers freed falls under the bound, until it was looked at or taken in. */
static void what_strangers_gave_counts_until_it_is_settled(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    hak_given_note(5 * MIB);
    assert_false(hak_given_over());
    hak_given_note(5 * MIB);
    assert_true(hak_given_over());
    hak_given_settle(8 * MIB);
    assert_int_equal(given_rest(), 2 * MIB);
    assert_false(hak_given_over());
    hak_given_note(-5 * MIB); /* taken in, and half of what was settled with it */
    hak_given_settle(-4 * MIB);
    assert_int_equal(given_rest(), MIB);
    hak_given_settle(-4 * MIB);
    hak_given_note(-7 * MIB); /* 2 more than were told */
    assert_int_equal(hak_load_relaxed(&hak_purge.given_bytes), 0);
    assert_int_equal(hak_load_relaxed(&hak_purge.settled_bytes), 0);
    hak_given_note(7 * MIB);
    assert_true(hak_given_over());
    hak_given_note(-7 * MIB);
    assert_int_equal(given_rest(), 0);
}

/* 32 threads that gave each other blocks of 1 MB in all held 140 MB: whoever says how much may stay is obeyed. The option stays
 * set: the last test of its program. */
static void a_bound_that_the_user_set_does_not_rise(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    assert_int_equal(hak_option_set("free_max_mb", "6"), 0);
    for (unsigned i = 0; i < 3; i++) memory_come_and_go(64 * MIB);
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 0);
    assert_true(free_now() <= (int64_t)(6 * MIB));
    hak_purge_spans(0);
}

/* Where something goes back every second nothing begins anew. */
static void what_went_back_long_ago_does_not_raise_keep(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    for (unsigned i = 0; i < 200; i++) { /* 32 MiB go back in each window, and are not touched again */
        hak_store_relaxed(&hak_purge.returned_ms, hak_os_clock_ms());
        hak_add(&hak_purge.judged_returned_bytes, 32 * MIB);
        hak_add(&hak_purge.enforced_bytes, 32 * MIB);
        windows_pass(1);
    }
    assert_true(hak_load_relaxed(&hak_purge.judged_returned_bytes) <= 64 * MIB);
    assert_true(hak_load_relaxed(&hak_purge.enforced_bytes) <= 64 * MIB);
    for (unsigned i = 0; i < 3; i++) memory_come_and_go(64 * MIB);
    assert_true(hak_load_relaxed(&hak_purge.keep_bytes) <= 512 * MIB);
    keep_set(0);
    hak_purge_spans(0);
}

static void sweep_all_chunks_twice(size_t number, size_t chunks) {
    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < chunks; i++) hak_purge_chunk(number + i, false);
}

static void the_sweep_waits_longer_when_it_was_too_early(void **state) {
    (void)state;
    hak_purge_spans(0);
    keep_set(0);
    uint64_t option = hak_purge_delay_ms();
    size_t dirty, count = 64, granule = hak_span_take(count, 64, &dirty), number = granule / HAK_CHUNK_GRANULES;
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    hak_purge_spans(0); /* by the bound: says nothing of the delay */
    assert_int_equal(hak_span_take(count, 64, &dirty), granule);
    assert_int_equal(hak_purge_delay_ms(), option);
    keep_set(0);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    sweep_all_chunks_twice(number, 1);
    assert_int_equal(hak_span_take(count, 64, &dirty), granule);
    assert_int_equal(dirty, 0);
    assert_int_equal(hak_purge_delay_ms(), 2 * option);
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 0); /* nor the sweep of the bound */
    hak_store_relaxed(&hak_purge.delay_since_ms, hak_os_clock_ms() - 31000);
    hak_purge_excess();
    assert_int_equal(hak_purge_delay_ms(), option);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
}

static void what_was_used_between_two_sweeps_is_not_cold(void **state) {
    (void)state;
    hak_purge_spans(0);
    size_t dirty, granule = hak_span_take(8, 1, &dirty), number = granule / HAK_CHUNK_GRANULES;
    hak_span_give(granule, 8, HAK_SPAN_DIRTY);
    assert_int_equal(hak_purge_chunk(number, false), 0);
    size_t again = hak_span_take(5, 1, &dirty);
    assert_int_equal(again, granule);
    hak_span_give(again, 5, HAK_SPAN_DIRTY);
    assert_int_equal(hak_purge_chunk(number, false), 3 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_purge_chunk(number, false), 5 * HAK_GRANULE_BYTES);
}

static bool refuse_return(enum hak_os_call call) { return call == HAK_OS_RETURN; }

static void what_the_kernel_refuses_to_take_stays_counted(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(100, 1, &dirty);
    hak_span_give(granule, 100, HAK_SPAN_DIRTY);
    int64_t before = free_now();
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
    hak_os_fault = refuse_return;
    assert_int_equal(hak_purge_spans(0), 0);
    hak_os_fault = NULL;
    assert_int_equal(free_now(), before);
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), returned);
    assert_int_equal(hak_purge_spans(0), before);
    assert_int_equal(free_now(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_may_have_begun_later_than_now),
        cmocka_unit_test(the_bound_is_the_largest_of_three),
        cmocka_unit_test(the_highest_spans_go_first_and_no_more_than_must),
        cmocka_unit_test(of_a_partial_granule_goes_back_what_is_there),
        cmocka_unit_test(what_is_used_is_not_returned),
        cmocka_unit_test(excess_is_returned_down_to_half_the_bound),
        cmocka_unit_test(only_what_stayed_free_goes_with_a_sweep),
        cmocka_unit_test(keep_rises_at_the_first_return_that_is_touched_again_at_once),
        cmocka_unit_test(what_is_never_drawn_is_not_kept),
        cmocka_unit_test(what_costs_little_is_not_kept),
        cmocka_unit_test(what_comes_back_after_more_than_a_second_is_kept_if_it_is_much),
        cmocka_unit_test(keep_rises_by_half_when_three_fifths_are_touched_again),
        cmocka_unit_test(what_strangers_gave_counts_until_it_is_settled),
        cmocka_unit_test(what_went_back_long_ago_does_not_raise_keep),
        cmocka_unit_test(what_comes_and_goes_stays_and_what_only_lies_there_goes),
        cmocka_unit_test(the_sweep_waits_longer_when_it_was_too_early),
        cmocka_unit_test(what_was_used_between_two_sweeps_is_not_cold),
        cmocka_unit_test(what_the_kernel_refuses_to_take_stays_counted),
        cmocka_unit_test(a_bound_that_the_user_set_does_not_rise),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
