/* chores.c - who freed much, or allocates rarely while memory is free, has next to nothing at hand, so that he looks at the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

enum { CLASSES = 3, TRIES = 100, FREE_BYTES = 2 << 20 };
static const unsigned class_of[CLASSES] = { 2, 10, HAK_SMALL_CLASS_MAX + 3 };
static void *taken[4096];
static unsigned taken_count;

static unsigned at_hand(struct hak_heap *heap, unsigned c) { return hak_word_count(hak_bin_at(heap, c)->word); }

static void take(struct hak_heap *heap, unsigned c) {
    assert_true(taken_count < sizeof taken / sizeof *taken);
    taken[taken_count] = block_take(heap, c);
    assert_non_null(taken[taken_count++]);
}

/* A visit: what is at hand is taken first. */
static void visit(struct hak_heap *heap, unsigned c) {
    while (at_hand(heap, c)) take(heap, c);
    take(heap, c);
}

static struct hak_heap *heap_with_bins(void) {
    struct hak_heap *heap = heap_make();
    taken_count = 0;
    for (unsigned i = 0; i < CLASSES; i++) {
        class_is_common(heap, class_of[i]);
        take(heap, class_of[i]);
        take(heap, class_of[i]);
    }
    assert_true(at_hand(heap, class_of[0]) > 8);
    return heap;
}

static void end(struct hak_heap *heap) {
    hak_store_relaxed(&hak_purge.over_since_ms, 0);
    for (unsigned i = 0; i < taken_count; i++) block_give(heap, taken[i]);
    heap_end(heap);
    AUDIT();
}

static unsigned all_at_hand(struct hak_heap *heap) {
    unsigned count = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) count += at_hand(heap, c);
    return count;
}

static void freed_puts_all_back(struct hak_heap *heap) {
    hak_heap_freed(heap);
    assert_int_equal(all_at_hand(heap), 0);
    end(heap);
}

static void a_free_in_a_grace_puts_all_back(void **state) {
    (void)state;
    struct hak_heap *heap = heap_with_bins();
    unsigned before = all_at_hand(heap);
    hak_heap_freed(heap);
    assert_int_equal(all_at_hand(heap), before); /* there is none */
    hak_store_relaxed(&hak_purge.over_since_ms, 1);
    freed_puts_all_back(heap);
}

static void a_free_that_gave_pages_back_does_so_too(void **state) {
    (void)state;
    struct hak_heap *heap = heap_with_bins();
    heap->at_hand_most = HAK_AT_HAND_ASKED;
    freed_puts_all_back(heap);
}

/* Whatever the processor's counter counts: a slow one made "rarely" 80 ms instead of one. */
static void a_tick_is_about_a_millisecond(void **state) {
    (void)state;
    enum { TICKS_MIN_NS = 250000, TICKS_MAX_NS = 4000000, WAIT_NS = 20000000 };
    uint64_t least = UINT64_MAX;
    for (unsigned tries = 0; tries < 5; tries++) { /* who is interrupted between the two clocks finds too much, or too little the next time */
        uint64_t ticks = hak_os_ticks(), begin_ns = hak_os_clock_ns(), ns;
        while ((ns = hak_os_clock_ns() - begin_ns) < WAIT_NS) continue;
        uint64_t tick_ns = ns / ((hak_os_ticks() - ticks) / 1024) * (HAK_TICKS / 1024);
        if (tick_ns < least) least = tick_ns;
    }
    assert_in_range(least, TICKS_MIN_NS, TICKS_MAX_NS);
}

static void not_again_within_some_milliseconds(void **state) {
    (void)state;
    struct hak_heap *heap = heap_with_bins();
    hak_store_relaxed(&hak_purge.over_since_ms, 1);
    unsigned before = all_at_hand(heap), tries = 0;
    bool is_left = false;
    for (; !is_left && tries < TRIES; tries++) { /* whoever is interrupted for so long tries again */
        heap->at_hand_most = 0;
        heap->hurried = hak_os_ticks();
        hak_heap_freed(heap);
        is_left = all_at_hand(heap) == before;
        for (unsigned i = 0; !is_left && i < CLASSES; i++) {
            heap->at_hand_most = 0;
            take(heap, class_of[i]);
        }
        before = all_at_hand(heap);
    }
    assert_true(is_left);
    end(heap);
}

static void few_are_at_hand_for_the_next_visits(void **state) {
    (void)state;
    struct hak_heap *heap = heap_with_bins();
    unsigned c = class_of[0], visits = 0;
    hak_store_relaxed(&hak_purge.over_since_ms, 1);
    hak_heap_freed(heap);
    for (; heap->at_hand_most != 0; visits++) {
        assert_true(visits < HAK_HURRY_VISITS);
        visit(heap, c);
        assert_true(heap->at_hand_most == 0 || at_hand(heap, c) <= 2);
    }
    assert_int_equal(visits, HAK_HURRY_VISITS);
    visit(heap, c);
    assert_true(at_hand(heap, c) > 8);
    end(heap);
}

/* One block, freed and asked for again: each free is an event, comes to the chores, and no visit is due. It stayed like that for good. */
static void a_hurry_ends_where_frees_come_to_the_chores(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = class_of[0], visits = 0;
    taken_count = 0;
    class_is_common(heap, c);
    hak_store_relaxed(&hak_purge.over_since_ms, 1);
    hak_heap_freed(heap);
    hak_store_relaxed(&hak_purge.over_since_ms, 0);
    for (; heap->at_hand_most != 0 && visits <= HAK_HURRY_VISITS * HAK_HURRY_DUE; visits++) {
        void *block = block_take(heap, c);
        hak_bin_trim(heap, c, 0);
        block_give(heap, block);
        if (hak_heap_chores_wait(heap)) hak_visit_chores_due(heap);
    }
    assert_in_range(visits, HAK_HURRY_VISITS, HAK_HURRY_VISITS * HAK_HURRY_DUE);
    end(heap);
}

static void who_visits_rarely_has_nothing_at_hand_while_memory_is_free(void **state) {
    (void)state;
    for (unsigned is_free = 0; is_free < 2; is_free++) {
        struct hak_heap *heap = heap_with_bins();
        hak_add(&hak_purge.free_bytes, is_free ? FREE_BYTES : 0);
        heap->clock_in = 0;
        heap->ticks_seen -= UINT64_C(1) << 40; /* a while ago */
        visit(heap, class_of[0]);
        hak_add(&hak_purge.free_bytes, is_free ? -FREE_BYTES : 0);
        if (is_free) assert_int_equal(all_at_hand(heap), 0);
        else assert_true(all_at_hand(heap) > 8);
        end(heap);
    }
}

/* Its last thread freed much, and ended a while ago: the first visits of the next are like any others. */
static void a_new_thread_is_in_no_hurry(void **state) {
    (void)state;
    struct hak_heap *heap = heap_with_bins();
    hak_store_relaxed(&hak_purge.over_since_ms, 1);
    hak_heap_freed(heap);
    assert_true(heap->at_hand_most != 0);
    heap->ticks_seen -= UINT64_C(1) << 40;
    end(heap);
    unsigned most = 0;
    for (unsigned tries = 0; most <= 8 && tries < TRIES; tries++) { /* as above */
        assert_ptr_equal(heap_make(), heap);
        class_is_common(heap, class_of[0]);
        hak_add(&hak_purge.free_bytes, FREE_BYTES);
        taken_count = 0;
        take(heap, class_of[0]);
        hak_add(&hak_purge.free_bytes, -FREE_BYTES);
        most = all_at_hand(heap);
        end(heap);
        heap->ticks_seen -= UINT64_C(1) << 40;
    }
    assert_true(most > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_in_a_grace_puts_all_back),
        cmocka_unit_test(a_free_that_gave_pages_back_does_so_too),
        cmocka_unit_test(a_tick_is_about_a_millisecond),
        cmocka_unit_test(not_again_within_some_milliseconds),
        cmocka_unit_test(few_are_at_hand_for_the_next_visits),
        cmocka_unit_test(a_hurry_ends_where_frees_come_to_the_chores),
        cmocka_unit_test(who_visits_rarely_has_nothing_at_hand_while_memory_is_free),
        cmocka_unit_test(a_new_thread_is_in_no_hurry),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
