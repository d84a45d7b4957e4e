/* grace.c - free memory above its bound stays for a moment, for who frees much often wants it again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/free_memory.h"

#include "memory/bigcache.h"
#include "memory/chunk.h"
#include "memory/large.h"
#include "memory/limit.h"
#include "memory/purge.h"
#include "rules/options.h"

enum { GRACE_MS = 600000 }; /* no test is as slow */

static int grace_begin(void **state) {
    (void)state;
    keep_set(0);
    hak_purge_spans(0);
    hak_options.free_grace_ms = GRACE_MS;
    hak_store_relaxed(&hak_purge.over_since_ms, 0);
    hak_store_relaxed(&hak_purge.grace_from_ms, 0);
    return 0;
}

static int grace_end(void **state) {
    (void)state;
    hak_options.free_grace_ms = 0;
    hak_purge_spans(0);
    keep_set(0);
    return 0;
}

/* So much becomes free memory. That it went back a moment ago, and is touched again, raises keep. */
static void freed(size_t bytes, uint64_t keep) {
    size_t dirty, count = bytes / HAK_GRANULE_BYTES, granule = hak_span_take(count, 1, &dirty);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    keep_set(keep);
}

static void what_is_wanted_again_in_time_does_not_go_back(void **state) {
    (void)state;
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
    for (unsigned round = 0; round < 3; round++) {
        freed(20 * MIB, 0);
        assert_true(hak_purge_over(0));
        hak_purge_enforce();
        assert_int_equal(free_now(), 20 * MIB);
        assert_true(hak_load_relaxed(&hak_purge.over_since_ms) != 0);
        size_t dirty, granule = hak_span_take(20 * MIB / HAK_GRANULE_BYTES, 1, &dirty);
        hak_purge_enforce(); /* below the bound: the next grace begins anew */
        assert_int_equal(hak_load_relaxed(&hak_purge.over_since_ms), 0);
        hak_span_give(granule, 20 * MIB / HAK_GRANULE_BYTES, HAK_SPAN_DIRTY);
    }
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), returned);
}

/* What learning halved the bound by was priced without a grace. */
static void where_the_bound_was_halved_there_is_none(void **state) {
    (void)state;
    hak_store_relaxed(&hak_purge.halvings, 1);
    freed(20 * MIB, 0);
    hak_purge_enforce();
    hak_store_relaxed(&hak_purge.halvings, 0);
    assert_int_equal(free_now(), 3 * MIB / 2);
    assert_int_equal(hak_load_relaxed(&hak_purge.over_since_ms), 0);
    hak_purge_spans(0);
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 20 * MIB);
}

static void what_is_not_goes_back_and_the_next_has_no_grace(void **state) {
    (void)state;
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 20 * MIB);
    hak_store_relaxed(&hak_purge.over_since_ms, hak_os_clock_ms() - GRACE_MS);
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);
    hak_store_relaxed(&hak_purge.grace_from_ms, hak_os_clock_ms() - 1); /* two seconds later */
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 20 * MIB);
}

/* Of a block that was hardly touched: it is looked at when its grace is over, and is not there. The next one has its own. */
static void what_only_seemed_free_costs_no_grace(void **state) {
    (void)state;
    size_t dirty, count = 20 * MIB / HAK_GRANULE_BYTES, granule = hak_span_take(count, 1, &dirty);
    assert_int_equal(dirty, 0);
    hak_span_leave_unseen(granule, count);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    hak_store_relaxed(&hak_purge.unseen, 1);
    keep_set(0);
    hak_store_relaxed(&hak_purge.over_since_ms, hak_os_clock_ms() - GRACE_MS);
    assert_false(hak_purge_is_over());
    assert_int_equal(free_now(), 0);
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 20 * MIB);
}

static void so_much_has_no_grace(void **state) {
    (void)state;
    freed(71 * MIB, 0); /* the bound is 6 */
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);
    freed(20 * MIB, 0); /* who frees so much frees on: the last 64 MiB would stay */
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);
    hak_store_relaxed(&hak_purge.grace_from_ms, hak_os_clock_ms() - 1);
    freed(70 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 70 * MIB);
    hak_purge_spans(0);
    freed(150 * MIB, 100 * MIB); /* as much again as is kept */
    hak_purge_enforce();
    assert_int_equal(free_now(), 150 * MIB);
}

/* Their owner may wait, and nobody else can use them: not for longer than what is free, and who looks only at that does not begin it anew. */
static void what_strangers_gave_has_one_too(void **state) {
    (void)state;
    freed(4 * MIB, 0);
    hak_given_note(40 * MIB);
    assert_false(hak_given_over());
    uint64_t since = hak_load_relaxed(&hak_purge.over_since_ms);
    assert_true(since != 0);
    assert_false(hak_purge_over_long());
    assert_int_equal(hak_load_relaxed(&hak_purge.over_since_ms), since);
    hak_store_relaxed(&hak_purge.over_since_ms, hak_os_clock_ms() - GRACE_MS);
    assert_true(hak_given_over());
    assert_true(hak_given_over()); /* nor is there another one now */
    hak_given_note(-40 * MIB);
    assert_false(hak_given_over());
    hak_store_relaxed(&hak_purge.grace_from_ms, hak_os_clock_ms() - 1);
    hak_given_note(40 * MIB);
    assert_false(hak_given_over());
    hak_given_note(-39 * MIB); /* the owner took in what makes it less than the bound: the next one is whole */
    assert_false(hak_purge_over_long());
    assert_int_equal(hak_load_relaxed(&hak_purge.over_since_ms), 0);
    hak_given_note(70 * MIB); /* as much has none */
    assert_true(hak_given_over());
    hak_given_note(-71 * MIB);
}

static void there_is_none_where_somebody_waits_for_the_memory(void **state) {
    (void)state;
    hak_store_relaxed(&hak_limit_group_bytes, (uint64_t)160 * MIB);
    freed(20 * MIB, 0); /* 4 more than its bound and a sixteenth of 160 */
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);
    hak_store_relaxed(&hak_purge.grace_from_ms, hak_os_clock_ms() - 1); /* two seconds later */
    freed(15 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 15 * MIB);
    hak_store_relaxed(&hak_limit_group_bytes, 0);
    hak_purge_spans(0);

    hak_store_relaxed(&hak_purge.crowded, 1);
    freed(20 * MIB, 0);
    hak_purge_enforce();
    hak_store_relaxed(&hak_purge.crowded, 0);
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);

    hak_options.limit_soft_mb = 24; /* room for all */
    freed(20 * MIB, 0);
    hak_purge_enforce();
    assert_int_equal(free_now(), 20 * MIB);
    hak_options.limit_soft_mb = 19;
    hak_purge_enforce();
    hak_options.limit_soft_mb = 0;
    assert_int_equal(free_now(), 3 * MIB);
    hak_purge_spans(0);

    bool is_limited = hak_region.is_limited;
    freed(20 * MIB, 0);
    assert_int_equal(hak_purge_over_long(), is_limited);
    hak_region.is_limited = true;
    assert_true(hak_purge_over_long());
    hak_region.is_limited = is_limited;
}

/* Sizes drift: what is free is not what the program wants. A quarter of what is free is no drift. */
static void who_grows_meanwhile_has_no_more_of_it(void **state) {
    (void)state;
    hak_purge_note_grown(100 * MIB); /* before it began */
    freed(22 * MIB, 0); /* 16 above the bound */
    hak_purge_enforce();
    hak_purge_note_grown(4 * MIB);
    hak_purge_enforce();
    assert_int_equal(free_now(), 22 * MIB);
    size_t dirty, granule = hak_span_take(14 * MIB / HAK_GRANULE_BYTES, 1, &dirty); /* most of it is wanted again, and some more */
    hak_purge_note_grown(256 << 10);
    hak_purge_enforce();
    assert_int_equal(free_now(), 8 * MIB);
    hak_purge_note_grown(1);
    hak_purge_enforce();
    assert_int_equal(free_now(), 3 * MIB);
    hak_span_give(granule, 14 * MIB / HAK_GRANULE_BYTES, HAK_SPAN_AS_IT_WAS);
}

/* Those of more than 2 MiB are known by their sites. */
static void large_blocks_grow(void **state) {
    (void)state;
    bool zeroed;
    freed(20 * MIB, 0);
    hak_purge_enforce();
    void *block[2] = { hak_large_take(NULL, 2 * MIB - 4096, 1, 0, &zeroed), NULL };
    assert_int_equal(hak_load_relaxed(&hak_purge.grown_bytes), 0); /* of what is free */
    size_t dirty, count = (size_t)free_now() / HAK_GRANULE_BYTES, granule = hak_span_take(count, 1, &dirty); /* what is taken now comes from the kernel */
    block[1] = hak_large_take(NULL, 2 * MIB - 4096, 1, 0, &zeroed);
    assert_int_equal(hak_load_relaxed(&hak_purge.grown_bytes), 2 * MIB);
    hak_store_relaxed(&hak_purge.over_since_ms, hak_os_clock_ms());
    void *larger = hak_large_take(NULL, 3 * MIB, 1, 0, &zeroed);
    assert_int_equal(hak_load_relaxed(&hak_purge.grown_bytes), 2 * MIB);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    assert_true(hak_large_give(hak_granule_at(hak_granule_of(larger))));
    for (unsigned i = 0; i < 2; i++) assert_true(hak_large_give(hak_granule_at(hak_granule_of(block[i]))));
}

/* What a thread keeps for itself has no grace, so that without this its blocks came from where all take theirs until the grace was over. */
static void what_sites_come_back_for_is_kept_at_once(void **state) {
    (void)state;
    static const char address;
    bool zeroed;
    for (unsigned round = 0; round < 4; round++) {
        hak_big_name site = hak_big_site(&address, 0, MIB, true);
        freed(20 * MIB, 0);
        hak_purge_enforce();
        assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 0);
        void *block = hak_large_take(NULL, MIB, 1, site, &zeroed);
        assert_true(hak_large_give(hak_granule_at(hak_granule_of(block))));
    }
    assert_true(hak_load_relaxed(&hak_purge.keep_bytes) > (uint64_t)20 * MIB);
    assert_false(hak_purge_over(0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_wanted_again_in_time_does_not_go_back, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(where_the_bound_was_halved_there_is_none, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(what_is_not_goes_back_and_the_next_has_no_grace, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(what_only_seemed_free_costs_no_grace, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(so_much_has_no_grace, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(what_strangers_gave_has_one_too, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(there_is_none_where_somebody_waits_for_the_memory, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(who_grows_meanwhile_has_no_more_of_it, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(large_blocks_grow, grace_begin, grace_end),
        cmocka_unit_test_setup_teardown(what_sites_come_back_for_is_kept_at_once, grace_begin, grace_end),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
