/* huge.c - halves become huge only where the heap is dense, and nothing else changes by it.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/huge_room.h"

#include "base/word.h"
#include "memory/ahead.h"
#include "memory/chunk.h"
#include "memory/huge.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "rules/options.h"

#include <string.h>
#include <sys/mman.h>

enum { SPAN = 16, HALF = HAK_HALF_GRANULES, MOST = 4096 };
#define MIB (1 << 20)

static size_t taken[MOST], taken_count;

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static bool is_huge(size_t granule) { return chunk_of(granule)->huge >> granule % 64 / HALF & 1; }

/* Takes spans as slabs do until one of them makes its half huge; its first granule. */
static size_t grow_until_huge(void) {
    hak_store_relaxed(&hak_purge.returned_ms, 0);
    for (taken_count = 0; taken_count < MOST;) {
        size_t granule = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        REQUIRE(granule != HAK_NO_GRANULE);
        taken[taken_count++] = granule;
        if (is_huge(granule)) return granule;
    }
    return HAK_NO_GRANULE;
}

static void give_all(void) {
    while (taken_count > 0) hak_span_give(taken[--taken_count], SPAN, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
}

static void small_heaps_have_no_huge_pages(void **state) {
    (void)state;
    hak_options.huge_from_mb = 16;
    for (taken_count = 0; taken_count < 8;) {
        taken[taken_count++] = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        assert_false(is_huge(taken[taken_count - 1]));
        assert_int_equal(resident_pages(taken[taken_count - 1], SPAN), 0);
    }
    give_all();
}

static void heaps_of_absent_pages_have_none(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    hak_absent_note(64 * MIB);
    for (taken_count = 0; taken_count < 64;) {
        taken[taken_count++] = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        assert_false(is_huge(taken[taken_count - 1]));
    }
    hak_absent_note(-64 * MIB);
    give_all();
}

/* However densely one class grows: its last half may stay unused, and is a fifth at most of what is resident. */
static void a_dense_class_has_none_while_little_is_resident(void **state) {
    (void)state;
    enum { FIFTHS = 5 };
    hak_options.huge_from_mb = 64;
    for (unsigned absent = 0; absent < 2; absent++) {
        if (absent) hak_absent_note(64 * MIB);
        bool has_huge = false;
        hak_store_relaxed(&hak_purge.returned_ms, 0);
        for (taken_count = 0; taken_count < 32 && !has_huge; taken_count++) {
            taken[taken_count] = hak_span_take_dense(SPAN, HAK_GROWTH_DENSE);
            has_huge = is_huge(taken[taken_count]);
            assert_true(!has_huge || taken_count >= FIFTHS * HALF / SPAN - 1);
        }
        if (absent) hak_absent_note(-64 * MIB);
        give_all();
        if (absent || hak_os_huge_there()) assert_int_equal(has_huge, !absent);
    }
}

static void heaps_that_just_returned_pages_have_none(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    hak_store_relaxed(&hak_purge.returned_ms, hak_os_clock_ms());
    for (taken_count = 0; taken_count < 64;) {
        taken[taken_count++] = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        assert_false(is_huge(taken[taken_count - 1]));
    }
    give_all();
}

static void a_refused_half_stays_as_it_was(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    hak_os_fault = refuse_advice;
    int64_t before = free_now();
    assert_int_equal(grow_until_huge(), HAK_NO_GRANULE);
    assert_int_equal(free_now(), before);
    for (unsigned i = 0; i < taken_count; i++) REQUIRE(!hak_load_relaxed(&chunk_of(taken[i])->blank));
    hak_os_fault = NULL;
    give_all();
}

static void the_rest_of_a_huge_half_is_free_resident_and_blank(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    int64_t before = free_now();
    size_t granule = grow_until_huge();
    if (granule == HAK_NO_GRANULE) skip(); /* this kernel has no huge pages */
    size_t half = granule / HALF * HALF;
    assert_int_equal(resident_pages(half, HALF), HALF * 16);
    assert_int_equal(free_now() - before, (HALF - SPAN) * HAK_GRANULE_BYTES);
    size_t dirty, next = hak_span_take(4, 1, &dirty);
    assert_int_equal(next / HALF, half / HALF);
    assert_int_equal(dirty, 4);
    assert_true(hak_span_is_blank(next, 4));
    for (size_t i = 0; i < 4 * HAK_GRANULE_BYTES; i += 512) REQUIRE(hak_granule_address(next)[i] == 0);
    hak_span_give(next, 4, HAK_SPAN_DIRTY);
    next = hak_span_take(4, 1, &dirty);
    assert_false(hak_span_is_blank(next, 4)); /* written by then */
    hak_span_give(next, 4, HAK_SPAN_DIRTY);

    /* a part goes back: split first, and the rest stays what it is */
    memset(hak_granule_address(granule), 7, SPAN * HAK_GRANULE_BYTES);
    hak_purge_spans(0);
    assert_false(is_huge(granule));
    assert_int_equal(free_now(), 0);
    assert_int_equal(resident_pages(half, HALF), SPAN * 16);
    for (size_t i = 0; i < SPAN * HAK_GRANULE_BYTES; i += 512) REQUIRE(hak_granule_address(granule)[i] == 7);
    next = hak_span_take(4, 1, &dirty);
    assert_int_equal(dirty, 0);
    assert_true(hak_span_is_blank(next, 4));
    hak_span_give(next, 4, HAK_SPAN_AS_IT_WAS);
    give_all();
}

/* A policy that halved the bound has a half's rest go back as soon as it is free memory. So it is not, for a second. */
static void under_a_halved_bound_the_rest_waits_for_slabs(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    hak_store_relaxed(&hak_purge.halvings, 3);
    int64_t before = free_now(), used = hak_load_relaxed(&hak_purge.used_granules);
    size_t granule = grow_until_huge(), dirty;
    if (granule != HAK_NO_GRANULE) {
        assert_int_equal(free_now(), before);
        size_t other = hak_span_take(4, 1, &dirty), few = hak_span_take_dense(4, HAK_GROWTH_LITTLE), next = hak_span_take_dense(4, HAK_GROWTH_SOME);
        assert_int_not_equal(other / HALF, granule / HALF);
        assert_int_not_equal(few / HALF, granule / HALF);
        assert_int_equal(next / HALF, granule / HALF);
        assert_int_equal(hak_load_relaxed(&chunk_of(next)->dirty) >> next % 64 & 15, 15);
        hak_ahead_end_now();
        assert_int_equal(free_now() - before, (HALF - SPAN - 4) * HAK_GRANULE_BYTES);
        hak_span_give(other, 4, HAK_SPAN_AS_IT_WAS);
        hak_span_give(few, 4, HAK_SPAN_AS_IT_WAS);
        hak_span_give(next, 4, HAK_SPAN_DIRTY);
    }
    hak_store_relaxed(&hak_purge.halvings, 0);
    give_all();
    assert_int_equal(hak_load_relaxed(&hak_purge.used_granules), used);
    if (granule == HAK_NO_GRANULE) skip();
}

static void calloc_of_blank_granules_knows_it(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    size_t granule = grow_until_huge();
    if (granule == HAK_NO_GRANULE) skip();
    bool zeroed = false;
    char *block = hak_large_take(NULL, 3 * HAK_GRANULE_BYTES, 1, 0, &zeroed);
    assert_int_equal(hak_granule_of(block) / HALF, granule / HALF);
    assert_true(zeroed);
    memset(block, 1, 3 * HAK_GRANULE_BYTES);
    assert_true(hak_large_give(hak_granule_at(hak_granule_of(block))));
    assert_ptr_equal(hak_large_take(NULL, 3 * HAK_GRANULE_BYTES, 1, 0, &zeroed), block);
    assert_false(zeroed);
    hak_large_clear(hak_granule_at(hak_granule_of(block)), 3 * HAK_GRANULE_BYTES);
    for (size_t i = 0; i < 3 * HAK_GRANULE_BYTES; i += 64) REQUIRE(block[i] == 0);
    assert_true(hak_large_give(hak_granule_at(hak_granule_of(block))));
    give_all();
}

/* A slab is refused a place where mail for an earlier life of it is under way. What a huge page made resident there meanwhile is free
 * memory, and goes back. */
static void a_huge_place_that_is_refused_is_free_memory(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    int64_t before = free_now();
    size_t granule = grow_until_huge();
    if (granule == HAK_NO_GRANULE) skip();
    hak_span_give(granule, SPAN, HAK_SPAN_AS_IT_WAS);
    taken_count--;
    assert_int_equal(free_now() - before, HALF * HAK_GRANULE_BYTES);
    size_t dirty;
    assert_int_equal(hak_span_take(SPAN, SPAN, &dirty), granule);
    assert_int_equal(dirty, SPAN);
    assert_true(hak_span_is_blank(granule, SPAN));
    hak_span_give(granule, SPAN, HAK_SPAN_AS_IT_WAS);
    hak_purge_spans(0);
    assert_int_equal(resident_pages(granule / HALF * HALF, HALF), 0);
    give_all();
}

/* A class's first slab may want a page, and is cut where nothing is resident: what the huge page of one left free was passed by for the next,
 * and each made 2 MiB resident. */
static void slabs_of_few_blocks_are_of_small_pages(void **state) {
    (void)state;
    enum { CHUNKS = 64, FEW = 32 };
    size_t whole[CHUNKS], few[FEW], above, dirty;
    hak_options.huge_from_mb = 1;
    if (grow_until_huge() == HAK_NO_GRANULE) skip();
    for (unsigned i = 0; i < CHUNKS; i++) whole[i] = hak_span_take(64, 64, &dirty);
    above = hak_span_take(64, 64, &dirty);
    for (unsigned i = 0; i < CHUNKS; i++) hak_span_give(whole[i], 64, HAK_SPAN_CLEAN);
    for (unsigned i = 0; i < FEW; i++) {
        few[i] = hak_span_take_dense(SPAN, HAK_GROWTH_LITTLE);
        assert_false(is_huge(few[i]));
        assert_int_equal(resident_pages(few[i], SPAN), 0);
    }
    for (unsigned i = 0; i < FEW; i++) hak_span_give(few[i], SPAN, HAK_SPAN_AS_IT_WAS);
    hak_span_give(above, 64, HAK_SPAN_AS_IT_WAS);
    give_all();
}

/* Free memory is near its bound: the rest of a half would break it. */
static void what_would_break_the_bound_is_not_made_huge(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    int64_t filler = INT64_C(1) << 30; /* an eighth of what is taken below is less */
    hak_free_note(filler, 0);
    assert_int_equal(grow_until_huge(), HAK_NO_GRANULE);
    hak_free_note(-filler, 0);
    give_all();
}

/* The kernel gives up in the middle of a half: what it had given does not stay resident unseen. */
static size_t next_half;
static unsigned advice_count;
static bool refuse_in_the_middle(enum hak_os_call call) {
    if (call != HAK_OS_ADVISE || ++advice_count % 2) return false; /* that it may be huge; then that it be there */
    memset(hak_granule_address(next_half), 1, 8 * HAK_GRANULE_BYTES);
    return true;
}
static void what_was_there_when_the_kernel_gave_up_goes_back(void **state) {
    (void)state;
    hak_options.huge_from_mb = 1;
    if (grow_until_huge() == HAK_NO_GRANULE) skip();
    advice_count = 0;
    hak_os_fault = refuse_in_the_middle;
    for (unsigned i = 0; i < 2 * MOST && advice_count < 2; i++) {
        size_t dirty, next = hak_span_take(SPAN, 1, &dirty);
        next_half = next / HALF * HALF;
        hak_span_give(next, SPAN, HAK_SPAN_AS_IT_WAS);
        REQUIRE(taken_count < MOST);
        taken[taken_count++] = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        REQUIRE(taken[taken_count - 1] == next);
    }
    hak_os_fault = NULL;
    assert_int_equal(advice_count, 2);
    assert_false(is_huge(next_half));
    assert_int_equal(resident_pages(next_half, HALF), 0);
    give_all();
}

/* A slab that lies across two halves, of which the upper one becomes huge: the lower part is as absent as before. */
static void only_the_half_that_is_huge_is_resident(void **state) {
    (void)state;
    enum { LOW = 24, REST = 64 - LOW - SPAN, CHUNKS = 64 };
    size_t low[CHUNKS], across[CHUNKS], rest[CHUNKS], dirty;
    unsigned count = 0;
    bool is_there = false;
    hak_options.huge_from_mb = 1;
    hak_store_relaxed(&hak_purge.returned_ms, 0);
    for (; count < CHUNKS && !is_there; count++) {
        low[count] = hak_span_take(LOW, 64, &dirty);
        across[count] = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        REQUIRE(across[count] == low[count] + LOW);
        is_there = is_huge(low[count] + HALF);
        uint64_t now = hak_load_relaxed(&chunk_of(low[count])->dirty) >> LOW & hak_word_mask(0, SPAN);
        REQUIRE(now == (is_there ? hak_word_mask(HALF - LOW, LOW + SPAN - HALF) : 0));
        REQUIRE(resident_pages(across[count], SPAN) == hak_word_count(now) * 16);
        rest[count] = hak_span_take(REST, 1, &dirty);
    }
    while (count-- > 0) {
        hak_span_give(low[count], LOW, HAK_SPAN_AS_IT_WAS);
        hak_span_give(across[count], SPAN, HAK_SPAN_AS_IT_WAS);
        hak_span_give(rest[count], REST, HAK_SPAN_AS_IT_WAS);
    }
    hak_purge_spans(0);
    assert_int_equal(free_now(), 0);
    if (!is_there) skip();
}

static bool refuse_late_and_maps(enum hak_os_call call) { return call == HAK_OS_FRESH_LATE || call == HAK_OS_MAP_AT; }

/* The kernel took the half away, and does not give it back. */
static void a_half_that_is_gone_is_given_to_nobody(void **state) {
    (void)state;
    if (!hak_os_huge_there()) skip();
    hak_options.huge_from_mb = 1;
    hak_store_relaxed(&hak_purge.returned_ms, 0);
    int64_t lost = hak_load_relaxed(&hak_large_lost_granules);
    hak_os_fault = refuse_late_and_maps;
    for (taken_count = 0; taken_count < 64;) {
        size_t granule = hak_span_take_dense(SPAN, HAK_GROWTH_SOME);
        if (granule == HAK_NO_GRANULE) break; /* its chunk is full, and no other is to be had */
        taken[taken_count++] = granule;
    }
    hak_os_fault = NULL;
    assert_int_equal(hak_load_relaxed(&hak_large_lost_granules), lost + HALF); /* once: no other is asked for */
    for (unsigned i = 0; i < taken_count; i++) REQUIRE(resident_pages(taken[i], SPAN) == 0); /* they are there: mincore says so */
    give_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_heaps_have_no_huge_pages),
        cmocka_unit_test(heaps_of_absent_pages_have_none),
        cmocka_unit_test(a_dense_class_has_none_while_little_is_resident),
        cmocka_unit_test(heaps_that_just_returned_pages_have_none),
        cmocka_unit_test(a_refused_half_stays_as_it_was),
        cmocka_unit_test(the_rest_of_a_huge_half_is_free_resident_and_blank),
        cmocka_unit_test(under_a_halved_bound_the_rest_waits_for_slabs),
        cmocka_unit_test(calloc_of_blank_granules_knows_it),
        cmocka_unit_test(a_huge_place_that_is_refused_is_free_memory),
        cmocka_unit_test(only_the_half_that_is_huge_is_resident),
        cmocka_unit_test(slabs_of_few_blocks_are_of_small_pages),
        cmocka_unit_test(what_would_break_the_bound_is_not_made_huge),
        cmocka_unit_test(what_was_there_when_the_kernel_gave_up_goes_back),
        cmocka_unit_test(a_half_that_is_gone_is_given_to_nobody), /* the last: there are no huge pages after it */
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
