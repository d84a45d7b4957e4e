/* ahead.c - halves in huge pages, made before slabs that are known to be filled: who gets them, what becomes of the rest, what ends it.
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
#include "memory/bigcache.h"
#include "memory/chunk.h"
#include "memory/huge.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { SPAN = 16, HALF = HAK_HALF_GRANULES };

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static int64_t used_now(void) { return hak_load_relaxed(&hak_purge.used_granules); }

static void without_knowledge_there_are_none(void **state) {
    (void)state;
    assert_int_equal(hak_ahead_take(1), HAK_NO_GRANULE);
    assert_int_equal(hak_load_relaxed(&hak_ahead_used), 0);
}

static void a_refusal_leaves_all_as_it_was(void **state) {
    (void)state;
    int64_t free_bytes = free_now(), used = used_now();
    hak_ahead_start(2);
    hak_os_fault = refuse_advice;
    assert_int_equal(hak_ahead_take(SPAN), HAK_NO_GRANULE);
    hak_os_fault = NULL;
    assert_int_equal(hak_ahead_take(SPAN), HAK_NO_GRANULE); /* and it is not asked again */
    assert_int_equal(free_now(), free_bytes);
    assert_int_equal(used_now(), used);
}

static void not_where_the_user_wants_none_or_a_limit_is_near(void **state) {
    (void)state;
    int64_t used = used_now();
    unsigned from = hak_options.huge_from_mb;
    hak_options.huge_from_mb = 0;
    hak_ahead_start(2);
    assert_int_equal(hak_ahead_take(SPAN), HAK_NO_GRANULE);
    hak_options.huge_from_mb = from;
    hak_options.limit_soft_mb = 4;
    hak_ahead_start(2);
    assert_int_equal(hak_ahead_take(SPAN), HAK_NO_GRANULE);
    hak_options.limit_soft_mb = 0;
    assert_int_equal(used_now(), used);
}

static void slabs_share_a_half_and_the_rest_comes_back(void **state) {
    (void)state;
    int64_t free_bytes = free_now(), used = used_now();
    hak_ahead_start(2);
    size_t first = hak_ahead_take(4);
    if (first == HAK_NO_GRANULE) skip(); /* no huge pages here */
    assert_int_equal(first % HALF, 0);
    assert_int_equal(resident_pages(first, HALF), HALF * 16);
    assert_int_equal(used_now() - used, HALF);
    assert_int_equal(free_now(), free_bytes); /* neither the bound nor others get at it */
    assert_int_equal(hak_load_relaxed(&chunk_of(first)->dirty) >> first % 64 & 15, 15);
    assert_int_equal(hak_load_relaxed(&chunk_of(first)->blank) >> first % 64 & 15, 15);
    assert_int_equal(hak_ahead_take(SPAN), first + 4);
    assert_int_equal(hak_ahead_take(1), first + 20);
    size_t dirty, other = hak_span_take(4, 1, &dirty);
    assert_int_not_equal(other / HALF, first / HALF);
    hak_span_give(other, 4, HAK_SPAN_AS_IT_WAS);

    size_t second = HAK_NO_GRANULE;
    if (!hak_ahead_was_dear()) {
        second = hak_ahead_take(SPAN); /* 11 are left: what is too large for them has the next half */
        assert_int_not_equal(second / HALF, first / HALF);
        assert_int_equal(hak_ahead_take(8), first + 21);
        assert_int_equal(hak_ahead_take(SPAN), second + SPAN);
        assert_int_equal(hak_ahead_take(SPAN), HAK_NO_GRANULE); /* so many and no more */
    } else {
        assert_int_equal(hak_ahead_take(8), first + 21);
    }
    int64_t made = second == HAK_NO_GRANULE ? HALF : 2 * HALF;
    assert_int_equal(used_now() - used, made);
    uint64_t now = hak_os_clock_ms();
    hak_ahead_end(now); /* a slab was just cut there */
    assert_int_equal(used_now() - used, made);
    hak_ahead_end(now + 1100);
    assert_int_equal(used_now() - used, made - 3);
    assert_int_equal(free_now() - free_bytes, 3 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_ahead_take(1), HAK_NO_GRANULE);

    memset(hak_granule_address(first), 7, 29 * HAK_GRANULE_BYTES);
    hak_purge_spans(0); /* the rest goes back, and nothing else */
    assert_int_equal(resident_pages(first, HALF), 29 * 16);
    for (size_t i = 0; i < 29 * HAK_GRANULE_BYTES; i += 512) REQUIRE(hak_granule_address(first)[i] == 7);
    hak_span_give(first, 29, HAK_SPAN_DIRTY);
    if (second != HAK_NO_GRANULE) hak_span_give(second, HALF, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
    assert_int_equal(used_now(), used);
    assert_int_equal(resident_pages(first, HALF), 0);
}

/* What lies in a half that others use is left alone. */
static void halves_begin_where_nothing_is(void **state) {
    (void)state;
    size_t dirty, one = hak_span_take(1, 1, &dirty), two = hak_span_take(HALF, HALF, &dirty);
    memset(hak_granule_address(two), 1, HALF * HAK_GRANULE_BYTES);
    hak_span_give(two, HALF, HAK_SPAN_DIRTY);
    hak_ahead_start(1);
    size_t first = hak_ahead_take(HALF);
    if (first == HAK_NO_GRANULE) skip();
    assert_int_not_equal(first / HALF, one / HALF);
    assert_int_not_equal(first / HALF, two / HALF);
    for (size_t i = 0; i < HALF * HAK_GRANULE_BYTES; i += 512) REQUIRE(hak_granule_address(first)[i] == 0);
    hak_span_give(first, HALF, HAK_SPAN_AS_IT_WAS);
    hak_span_give(one, 1, HAK_SPAN_AS_IT_WAS);
    hak_purge_spans(0);
}

/* Of a site that touches all it asks for, as long as so many are known to come; one that must show whether it is still so comes as ever. */
static void large_blocks_of_dense_sites_lie_there(void **state) {
    (void)state;
    enum { EACH = 3, COUNT = 8 };
    static const char here, there;
    char *block[COUNT], *other;
    bool zeroed = false;
    hak_big_name dense = hak_big_site(&here, 0, EACH * HAK_GRANULE_BYTES, true), unknown = hak_big_site(&there, 0, EACH * HAK_GRANULE_BYTES, true);
    for (unsigned i = 0; i < 4; i++) hak_big_looked(dense, 1024);
    hak_ahead_start(1);
    hak_store_relaxed(&hak_ahead_large, COUNT * EACH);
    unsigned inside = 0;
    other = hak_large_take(NULL, EACH * HAK_GRANULE_BYTES, 1, unknown, &zeroed);
    assert_false(hak_huge_at(hak_granule_of(other)));
    for (unsigned i = 0; i < COUNT; i++) {
        dense = hak_big_site(&here, 0, EACH * HAK_GRANULE_BYTES, true);
        block[i] = hak_large_take(NULL, EACH * HAK_GRANULE_BYTES, 1, dense, &zeroed);
        assert_true(zeroed);
        for (size_t at = 0; at < EACH * HAK_GRANULE_BYTES; at += 512) REQUIRE(block[i][at] == 0);
        memset(block[i], 7, EACH * HAK_GRANULE_BYTES);
        inside += hak_huge_at(hak_granule_of(block[i]));
    }
    size_t number = hak_granule_of(block[COUNT - 1]) / HAK_CHUNK_GRANULES, sum = 0;
    for (size_t i = 0; i <= number; i++) sum += hak_large_dense(i);
    assert_int_equal(sum, COUNT * EACH);
    for (unsigned i = 0; i < COUNT; i++) assert_true(hak_large_give(hak_granule_at(hak_granule_of(block[i]))));
    assert_true(hak_large_give(hak_granule_at(hak_granule_of(other))));
    hak_ahead_end_now();
    hak_purge_spans(0);
    if (inside == 0) skip(); /* the kernel had none at hand a moment ago */
    assert_true(inside >= COUNT - 2);
}

static void a_child_has_tried_none(void **state) {
    (void)state;
    hak_ahead_forget();
    assert_false(hak_ahead_was_tried());
    assert_false(hak_ahead_was_dear());
}

/* Threads that cut at once get a granule each, and all of them. */
enum { THREADS = 4 };
static size_t mine[THREADS][2 * HALF], mine_count[THREADS];

static void *takes(void *number) {
    size_t self = (size_t)(uintptr_t)number, count = 1 + self % 3;
    for (;;) {
        size_t granule = hak_ahead_take(count);
        if (granule == HAK_NO_GRANULE && count == 1) return NULL;
        if (granule == HAK_NO_GRANULE) count = 1;
        for (size_t i = 0; granule != HAK_NO_GRANULE && i < count; i++) {
            _Atomic(size_t) *word = (_Atomic(size_t) *)(void *)hak_granule_address(granule + i);
            REQUIRE(atomic_fetch_add(word, self + 1) == 0);
            mine[self][mine_count[self]++] = granule + i;
        }
    }
}

static void threads_that_cut_at_once_share_nothing(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int64_t used = used_now();
    size_t sum = 0;
    hak_ahead_start(2);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, takes, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) sum += mine_count[i];
    assert_int_equal(used_now() - used, sum);
    assert_int_equal(sum % HALF, 0);
    for (size_t i = 0; i < THREADS; i++)
        while (mine_count[i] > 0) hak_span_give(mine[i][--mine_count[i]], 1, HAK_SPAN_DIRTY);
    hak_purge_spans(0);
    assert_int_equal(used_now(), used);
    if (sum == 0) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_knowledge_there_are_none),
        cmocka_unit_test(a_refusal_leaves_all_as_it_was),
        cmocka_unit_test(not_where_the_user_wants_none_or_a_limit_is_near),
        cmocka_unit_test(slabs_share_a_half_and_the_rest_comes_back),
        cmocka_unit_test(halves_begin_where_nothing_is),
        cmocka_unit_test(a_child_has_tried_none),
        cmocka_unit_test(threads_that_cut_at_once_share_nothing),
        cmocka_unit_test(large_blocks_of_dense_sites_lie_there),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
