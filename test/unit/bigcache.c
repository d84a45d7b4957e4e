/* bigcache.c - what sites of large blocks do is learnt, bounded, and forgotten for busier ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "memory/bigcache.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "rules/options.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1 << 20)
#define SITE(n) ((const void *)(uintptr_t)(0x400000 + 16 * (n)))

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static struct hak_granule *record_of(void *block) { return hak_granule_at(hak_granule_of(block)); }

static void *block_take(hak_big_name site, size_t bytes) {
    bool zeroed;
    char *block = hak_large_take(NULL, bytes, 1, site, &zeroed);
    REQUIRE(block != NULL);
    return block;
}

static bool dense(hak_big_name name) {
    bool is_looked_at;
    return hak_big_is_dense(name, &is_looked_at);
}

static void a_site_is_its_address_height_and_octave(void **state) {
    (void)state;
    hak_big_name name = hak_big_site(SITE(1), 7, 3 * MIB, true);
    assert_int_not_equal(name, 0);
    assert_int_equal(hak_big_site(SITE(1), 7, 2 * MIB, true), name);
    assert_int_not_equal(hak_big_site(SITE(1), 7, 4 * MIB, true), name);
    assert_int_not_equal(hak_big_site(SITE(1), 8, 3 * MIB, true), name);
    assert_int_not_equal(hak_big_site(SITE(2), 7, 3 * MIB, true), name);
}

static void switched_off_it_knows_nobody(void **state) {
    (void)state;
    hak_options.disable_bigcache = 1;
    assert_int_equal(hak_big_site(SITE(1), 7, 3 * MIB, true), 0);
    hak_options.disable_bigcache = 0;
    hak_options.minimal = 1;
    assert_int_equal(hak_big_site(SITE(1), 7, 3 * MIB, true), 0);
    hak_options.minimal = 0;
    assert_false(hak_big_comes_back(0));
    assert_false(hak_big_never_comes_back(0));
    assert_false(dense(0));
}

static void who_asks_soon_after_a_free_twice_comes_back(void **state) {
    (void)state;
    hak_big_name name = hak_big_site(SITE(10), 0, 5 * MIB, true);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(hak_big_comes_back(name));
        hak_big_given(name);
        hak_big_site(SITE(10), 0, 5 * MIB, true);
    }
    assert_true(hak_big_comes_back(name));
    hak_options.large_linger_ms = 0; /* no time is short enough */
    for (unsigned i = 0; i < 3; i++) {
        hak_big_given(name);
        hak_big_site(SITE(10), 0, 5 * MIB, true);
    }
    hak_options.large_linger_ms = 1000;
    assert_false(hak_big_comes_back(name));
    assert_true(hak_big_never_comes_back(name));
}

static void a_block_that_was_touched_makes_its_site_dense_at_every_size(void **state) {
    (void)state;
    hak_big_name name = hak_big_site(SITE(20), 0, 300000, true);
    assert_false(dense(name));
    char *block = block_take(name, 300000);
    memset(block, 1, 300000);
    assert_true(hak_large_give(record_of(block)));
    assert_true(dense(name));
    assert_true(dense(hak_big_site(SITE(20), 0, 40 * MIB, true))); /* of which nothing was seen yet */
    assert_false(dense(hak_big_site(SITE(21), 0, 300000, true)));
    hak_purge_spans(0);
}

static void the_block_before_tells_when_none_is_freed(void **state) {
    (void)state;
    void *block[4];
    hak_big_name name = 0;
    for (unsigned i = 0; i < 4; i++) {
        name = hak_big_site(SITE(30), 0, 1 * MIB, true);
        block[i] = block_take(name, 1 * MIB);
        memset(block[i], 1, 1 * MIB);
    }
    assert_true(dense(name));
    for (unsigned i = 0; i < 4; i++) assert_true(hak_large_give(record_of(block[i])));
    hak_purge_spans(0);
}

static void one_untouched_block_ends_it(void **state) {
    (void)state;
    hak_big_name name = hak_big_site(SITE(40), 0, 1 * MIB, true);
    hak_big_looked(name, 1024);
    assert_true(dense(name));
    hak_big_looked(name, 100);
    assert_false(dense(name));
    hak_big_looked(name, 1024);
    assert_false(dense(name)); /* trust comes back slowly */
    for (unsigned i = 0; i < 20; i++) hak_big_looked(name, 1024);
    assert_true(dense(name));
}

/* 3 MiB of which a page is touched, as bzip2's tables are: what is free of them is that page, for whoever gets the memory next. */
static void of_a_sparse_block_only_what_was_touched_is_free_memory(void **state) {
    (void)state;
    size_t page = (size_t)1 << hak_region.page_shift;
    if (page == HAK_GRANULE_BYTES || getenv("HAK_TEST_EMULATED")) skip(); /* qemu-user answers mincore for its own pages */
    hak_purge_spans(0);
    int64_t before = hak_load_relaxed(&hak_purge.free_bytes);
    for (unsigned i = 0; i < 40; i++) {
        hak_big_name name = hak_big_site(SITE(60), 0, 3 * MIB, true);
        char *block = block_take(name, 3 * MIB);
        block[i % 3 * MIB] = 1;
        assert_true(hak_large_give(record_of(block)));
        if (i == 0) assert_true(hak_big_is_sparse(name));
        assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes) - before, 3 * MIB); /* nobody has looked yet: the site may be back at once */
        if (i % 4) continue;
        uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes);
        hak_options.free_max_mb = 1; /* it seems to be too much, and is not */
        hak_options.free_share = 1024;
        hak_purge_enforce();
        hak_options.free_max_mb = 6;
        hak_options.free_share = 8;
        int64_t free_bytes = hak_load_relaxed(&hak_purge.free_bytes) - before;
        assert_true(free_bytes >= (int64_t)page && free_bytes <= 3 * (int64_t)page);
        assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), returned);
    }
    bool zeroed = true;
    char *block = hak_large_take(NULL, 3 * MIB, 1, 0, &zeroed); /* another's: it may hold what is swapped out */
    assert_false(zeroed);
    memset(block, 1, 3 * MIB);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), before);
    assert_true(hak_large_give(record_of(block)));
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes) - before, 3 * MIB);
    hak_purge_spans(0);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), before);
}

/* Threads that each want their own again: what they draw of free memory is little beside it. */
static void in_a_crowd_no_more_is_kept_than_is_drawn(void **state) {
    (void)state;
    hak_purge_spans(0);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_store_relaxed(&hak_purge.keep_ms, hak_os_clock_ms());
    hak_free_note(20 * MIB, 0);
    hak_store_relaxed(&hak_purge.drawn_bytes, 3 * MIB);
    hak_store_relaxed(&hak_purge.crowded, 1);
    assert_false(hak_purge_keep());
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 0);
    hak_store_relaxed(&hak_purge.drawn_bytes, 4 * MIB);
    assert_true(hak_purge_keep());
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_store_relaxed(&hak_purge.drawn_bytes, 0);
    hak_store_relaxed(&hak_purge.crowded, 0);
    assert_true(hak_purge_keep());
    assert_int_equal(hak_load_relaxed(&hak_purge.keep_bytes), 25 * MIB);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_free_note(-20 * MIB, 0);
}

/* The site's block is freed over the bound: kept if it comes back, else returned. */
static void what_comes_back_is_kept_over_the_bound_but_not_over_its_own(void **state) {
    (void)state;
    hak_purge_spans(0);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_store_relaxed(&hak_purge.keep_ms, hak_os_clock_ms());
    uint64_t before = 0;
    for (unsigned i = 0; i < 8; i++) {
        hak_big_name name = hak_big_site(SITE(50), 0, 20 * MIB, true);
        void *block = block_take(name, 20 * MIB);
        memset(block, 1, 20 * MIB);
        if (i == 3) before = hak_load_relaxed(&hak_purge.returned_bytes);
        assert_true(hak_large_give(record_of(block)));
    }
    assert_int_equal(hak_load_relaxed(&hak_purge.returned_bytes), before);
    assert_true(hak_load_relaxed(&hak_purge.free_bytes) >= 20 * MIB);
    hak_purge_spans(0);
    hak_options.large_keep_mb = 10;
    void *block = block_take(hak_big_site(SITE(50), 0, 20 * MIB, true), 20 * MIB);
    memset(block, 1, 20 * MIB);
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    before = hak_load_relaxed(&hak_purge.returned_bytes);
    assert_true(hak_large_give(record_of(block)));
    assert_true(hak_load_relaxed(&hak_purge.returned_bytes) > before);
    hak_options.large_keep_mb = 1024;
    hak_purge_spans(0);
}

static void a_full_table_forgets_the_idle(void **state) {
    (void)state;
    for (unsigned i = 0; i < 5000; i++) hak_big_site(SITE(1000 + i), 0, 100000, true);
    unsigned known = 0;
    for (unsigned i = 0; i < 40; i++) known = hak_big_site(SITE(9999), 0, 100000, true) != 0;
    assert_true(known); /* who goes on asking gets a row */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_its_address_height_and_octave),
        cmocka_unit_test(switched_off_it_knows_nobody),
        cmocka_unit_test(who_asks_soon_after_a_free_twice_comes_back),
        cmocka_unit_test(a_block_that_was_touched_makes_its_site_dense_at_every_size),
        cmocka_unit_test(the_block_before_tells_when_none_is_freed),
        cmocka_unit_test(one_untouched_block_ends_it),
        cmocka_unit_test(of_a_sparse_block_only_what_was_touched_is_free_memory),
        cmocka_unit_test(in_a_crowd_no_more_is_kept_than_is_drawn),
        cmocka_unit_test(what_comes_back_is_kept_over_the_bound_but_not_over_its_own),
        cmocka_unit_test(a_full_table_forgets_the_idle),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
