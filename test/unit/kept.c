/* kept.c - the last spans of large blocks stay with their thread, bounded, counted, and for anyone to give back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/kept.h"
#include "rules/options.h"

#include <pthread.h>
#include <string.h>

static struct hak_granule *record_of(void *block) { return hak_granule_at(hak_granule_of(block)); }

/* The block lies in the span where that one lay: where in its first page depends on its size. */
static bool is_again(void *block, void *span) { return block && record_of(block) == record_of(span); }

static void *large_take(size_t granules) {
    bool zeroed;
    void *block = hak_large_take(NULL, granules * HAK_GRANULE_BYTES, 1, 0, &zeroed);
    REQUIRE(block != NULL);
    return block;
}

/* As free of a large block by the thread of this heap; whether it was kept. */
static bool large_free(struct hak_heap *heap, void *block) {
    REQUIRE(hak_large_end(record_of(block)));
    if (hak_kept_give(heap, record_of(block))) return true;
    hak_large_finish(NULL, record_of(block));
    return false;
}

static void the_span_freed_last_comes_first_and_only_at_its_size(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *one = large_take(3), *two = large_take(3);
    assert_true(large_free(heap, one));
    assert_true(large_free(heap, two));
    assert_null(hak_kept_take(heap, 2, 100000));
    assert_null(hak_kept_take(heap, 4, 200000));
    char *block = hak_kept_take(heap, 3, 140000);
    assert_true(is_again(block, two));
    assert_ptr_equal(record_of(two)->start, block);
    assert_ptr_equal(block + hak_large_usable(record_of(two)), hak_granule_address(hak_granule_of(two)) + 143360);
    assert_ptr_equal(hak_kept_take(heap, 3, 3 * HAK_GRANULE_BYTES), one);
    assert_null(hak_kept_take(heap, 3, 140000));
    AUDIT();
    assert_true(large_free(heap, one));
    assert_true(large_free(heap, block));
    heap_end(heap);
    AUDIT();
}

/* Whatever stands apart: what was freed last of all, or, when another size was, what was freed last of this one. */
static void each_size_gives_what_was_freed_last_of_it(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *three[2] = { large_take(3), large_take(3) }, *eight[2] = { large_take(8), large_take(8) };
    for (unsigned i = 0; i < 2; i++) {
        assert_true(large_free(heap, three[i]));
        assert_true(large_free(heap, eight[i]));
    }
    assert_int_equal(heap->kept.bytes, 22 * HAK_GRANULE_BYTES);
    for (unsigned i = 2; i-- > 0;) {
        assert_true(is_again(hak_kept_take(heap, 3, 140000), three[i]));
        assert_true(is_again(hak_kept_take(heap, 7, 450000), eight[i]));
    }
    assert_int_equal(heap->kept.bytes, 0);
    AUDIT();
    for (unsigned i = 0; i < 2; i++) large_free(heap, three[i]), large_free(heap, eight[i]);
    hak_kept_flush(heap);
    assert_int_equal(heap->kept.reserved, 0);
    AUDIT();
    heap_end(heap);
    AUDIT();
}

static void a_span_serves_sizes_up_to_a_quarter_less(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *block = large_take(10), *next = large_take(1);
    assert_true(large_free(heap, block));
    assert_null(hak_kept_take(heap, 7, 7 * HAK_GRANULE_BYTES));
    assert_ptr_equal(hak_kept_take(heap, 8, 8 * HAK_GRANULE_BYTES), block);
    assert_int_equal(hak_large_granules(record_of(block)), 10);
    assert_int_equal(hak_large_usable(record_of(block)), 8 * HAK_GRANULE_BYTES);
    AUDIT();
    assert_true(hak_large_resize(record_of(block), 10 * HAK_GRANULE_BYTES));
    assert_false(hak_large_resize(record_of(block), 11 * HAK_GRANULE_BYTES));
    assert_true(large_free(heap, block));
    assert_ptr_equal(hak_kept_take(heap, 10, 10 * HAK_GRANULE_BYTES), block);
    assert_true(large_free(heap, block));
    large_free(heap, next);
    heap_end(heap);
    AUDIT();
}

static void what_is_kept_goes_back_rather_than_memory_is_touched_for_the_first_time(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *one = large_take(4), *two = large_take(8), *end = large_take(1);
    assert_true(large_free(heap, one));
    assert_true(large_free(heap, two));
    hak_kept_make_room(heap, 25); /* they are less than half of it */
    assert_int_equal(heap->kept.bytes, 12 * HAK_GRANULE_BYTES);
    void *gap = large_take(3), *behind = large_take(1);
    REQUIRE(hak_large_end(record_of(gap)));
    hak_large_finish(NULL, record_of(gap));
    hak_kept_make_room(heap, 3); /* there it is resident */
    assert_int_equal(heap->kept.bytes, 12 * HAK_GRANULE_BYTES);
    assert_ptr_equal(large_take(3), gap);
    hak_kept_make_room(heap, 12);
    assert_int_equal(heap->kept.bytes, 0);
    assert_ptr_equal(large_take(12), one); /* both in one */
    AUDIT();
    hak_kept_make_room(heap, 1); /* nothing is kept */
    void *all[] = { one, gap, end, behind };
    for (unsigned i = 0; i < 4; i++) large_free(heap, all[i]);
    heap_end(heap);
    AUDIT();
}

static void a_kept_block_is_nobodys_and_cannot_be_freed_again(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *block = large_take(5);
    assert_true(large_free(heap, block));
    assert_null(hak_load_relaxed(&record_of(block)->owner));
    assert_true(hak_large_is_kept(record_of(block)));
    assert_false(hak_large_end(record_of(block)));
    assert_false(hak_large_give(record_of(block)));
    heap_end(heap);
    assert_false(hak_large_is_kept(record_of(block)));
    AUDIT();
}

static void it_keeps_a_bounded_number_and_never_over_the_bound(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *block[40];
    for (unsigned i = 0; i < 40; i++) block[i] = large_take(1);
    for (unsigned i = 0; i < 40; i++) assert_int_equal(large_free(heap, block[i]), i < HAK_KEPT_EACH);
    AUDIT();
    for (unsigned i = 0; i < 4; i++) block[i] = large_take(20);
    hak_kept_flush(heap);
    assert_true(large_free(heap, block[0]));
    assert_true(large_free(heap, block[1]));
    assert_false(large_free(heap, block[3])); /* 3 MiB in all */
    hak_kept_flush(heap);
    hak_purge_spans(0);
    hak_options.free_max_mb = 0;
    hak_options.free_grace_ms = 60000; /* not of what only this thread can use */
    assert_false(large_free(heap, block[2]));
    hak_options.free_max_mb = 6;
    hak_options.free_grace_ms = 0;
    heap_end(heap);
    AUDIT();
}

/* Spans that are in use are free memory no longer, though their thread, which could say so, waits. */
static void what_was_taken_again_is_not_free_while_its_thread_waits(void **state) {
    (void)state;
    enum { COUNT = 3, EACH = 16 };
    struct hak_heap *heap = heap_make();
    void *block[COUNT];
    for (unsigned i = 0; i < COUNT; i++) block[i] = large_take(EACH);
    int64_t before = free_now();
    for (unsigned i = 0; i < COUNT; i++) assert_true(large_free(heap, block[i]));
    assert_int_equal(free_now() - before, COUNT * EACH * HAK_GRANULE_BYTES);
    for (unsigned i = 0; i < COUNT; i++) assert_non_null(hak_kept_take(heap, EACH, EACH * HAK_GRANULE_BYTES));
    hak_kept_steal(heap); /* as the sweep does */
    assert_int_equal(free_now(), before);
    assert_int_equal(hak_load_relaxed(&heap->kept.reserved), 0);
    for (unsigned i = 0; i < COUNT; i++) assert_true(large_free(heap, block[i]));
    heap_end(heap);
    AUDIT();
}

/* What HAK_KEPT_MISSED_LOOK takes do that missed what was refused. */
static void miss_much(struct hak_heap *heap, bool is_soon) {
    heap->kept.looked_ms = is_soon ? (uint32_t)hak_os_clock_ms() : 0; /* 0: since the start of the machine */
    heap->kept.missed = HAK_KEPT_MISSED_LOOK - 1;
    heap->kept.refused = 1;
    hak_kept_missed(heap);
    assert_true(heap->kept.missed == 0 && heap->kept.refused == 0);
}

static void who_soon_misses_much_that_was_refused_keeps_more(void **state) {
    (void)state;
    enum { MOST = HAK_KEPT_BYTES_MAX + HAK_KEPT_STEPS_MAX * HAK_KEPT_STEP_BYTES };
    struct hak_heap *heap = heap_make();
    void *block[4 * HAK_KEPT_STEPS_MAX];
    hak_kept_missed(heap);
    assert_int_equal(heap->kept.missed, 0); /* a larger list would not have helped */
    for (unsigned i = 0; i < 4; i++) block[i] = large_take(20);
    for (unsigned i = 0; i < 4; i++) assert_int_equal(large_free(heap, block[i]), i < 2);
    assert_int_equal(heap->kept.refused, 2);
    hak_kept_missed(heap);
    assert_true(heap->kept.missed == 1 && heap->kept.refused == 1);
    hak_kept_flush(heap);
    miss_much(heap, false);
    assert_int_equal(heap->kept.steps, 0);
    for (unsigned i = 1; i <= HAK_KEPT_STEPS_MAX; i++) {
        miss_much(heap, true);
        assert_int_equal(heap->kept.steps, i);
    }
    miss_much(heap, true);
    assert_int_equal(heap->kept.steps, HAK_KEPT_STEPS_MAX);
    hak_options.free_max_mb = 64;
    for (unsigned i = 0; i < 8; i++) block[i] = large_take(20);
    for (unsigned i = 0; i < 8; i++) assert_int_equal(large_free(heap, block[i]), (i + 1) * 20 * HAK_GRANULE_BYTES <= MOST);
    hak_kept_flush(heap);
    for (unsigned i = 0; i < 12; i++) block[i] = large_take(1);
    for (unsigned i = 0; i < 12; i++) assert_int_equal(large_free(heap, block[i]), i < HAK_KEPT_EACH_MOST);
    AUDIT();
    uint64_t now = heap->kept.rose_ms;
    miss_much(heap, false); /* not so soon: it falls all the same */
    hak_kept_tick(heap, now + 999);
    assert_int_equal(heap->kept.steps, HAK_KEPT_STEPS_MAX);
    hak_kept_tick(heap, now + 1000);
    assert_int_equal(heap->kept.steps, HAK_KEPT_STEPS_MAX / 2);
    hak_options.free_max_mb = 6;
    heap_end(heap);
    AUDIT();
}

static void switched_off_nothing_is_kept(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    hak_options.disable_bigcache = 1;
    assert_false(large_free(heap, large_take(1)));
    hak_options.disable_bigcache = 0;
    hak_options.minimal = 1;
    assert_false(large_free(heap, large_take(1)));
    hak_options.minimal = 0;
    heap_end(heap);
    AUDIT();
}

static void what_is_kept_counts_as_free_and_goes_back_with_time(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    hak_purge_spans(0);
    int64_t before = hak_load_relaxed(&hak_purge.free_bytes);
    void *block = large_take(7);
    assert_true(large_free(heap, block));
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes) - before, 7 * HAK_GRANULE_BYTES);
    hak_kept_flush(heap);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes) - before, 7 * HAK_GRANULE_BYTES);
    hak_purge_spans(0);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), 0);
    heap_end(heap);
    AUDIT();
}

static void a_reused_block_that_was_fresh_is_cleared_for_calloc(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    hak_purge_spans(0);
    bool zeroed;
    char *block = hak_large_take(NULL, 2 * HAK_GRANULE_BYTES, 1, 0, &zeroed);
    assert_true(zeroed);
    memset(block, 1, 2 * HAK_GRANULE_BYTES);
    assert_true(large_free(heap, block));
    assert_ptr_equal(hak_kept_take(heap, 2, 2 * HAK_GRANULE_BYTES), block);
    hak_large_clear(record_of(block), 2 * HAK_GRANULE_BYTES);
    for (size_t i = 0; i < 2 * HAK_GRANULE_BYTES; i++) REQUIRE(block[i] == 0);
    assert_true(large_free(heap, block));
    heap_end(heap);
    AUDIT();
}

static void what_was_stolen_is_not_handed_out(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make(), *other = heap_make();
    void *block = large_take(4);
    assert_true(large_free(heap, block));
    hak_kept_steal(heap);
    /* its place is another block's by now */
    void *again = large_take(4);
    assert_ptr_equal(again, block);
    assert_null(hak_kept_take(heap, 4, 200000));
    assert_true(large_free(heap, again));
    assert_true(large_free(other, large_take(4)));
    hak_kept_steal(heap);
    hak_kept_steal(other);
    assert_null(hak_kept_take(other, 4, 200000));
    heap_end(other);
    heap_end(heap);
    AUDIT();
}

static bool refuse_barrier(enum hak_os_call call) { return call == HAK_OS_BARRIER; }

static void a_thief_leaves_when_the_thread_is_at_it_or_there_is_no_barrier(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *block = large_take(4);
    assert_true(large_free(heap, block));
    hak_store_relaxed(&heap->kept.busy, 1);
    hak_kept_steal(heap);
    assert_true(hak_large_is_kept(record_of(block)));
    assert_int_equal(hak_load_relaxed(&heap->kept.thief), 0);
    hak_store_relaxed(&heap->kept.busy, 0);
    hak_os_fault = refuse_barrier;
    hak_kept_steal(heap);
    hak_os_fault = NULL;
    assert_true(hak_large_is_kept(record_of(block)));
    hak_kept_steal(heap);
    assert_false(hak_large_is_kept(record_of(block)));
    assert_int_equal(heap->kept.reserved, 0);
    heap_end(heap);
    AUDIT();
}

static void under_a_thief_the_thread_does_without_and_one_of_the_parent_is_none(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    void *one = large_take(4), *two = large_take(4), *three = large_take(6);
    assert_true(large_free(heap, one));
    hak_store_relaxed(&heap->kept.thief, hak_load_relaxed(&hak_epoch));
    assert_null(hak_kept_take(heap, 4, 200000));
    assert_false(large_free(heap, two));
    hak_kept_flush(heap);
    assert_true(hak_large_is_kept(record_of(one)));
    /* left behind in the parent, when it had dropped one and not yet said so */
    assert_true((hak_store_relaxed(&heap->kept.thief, 0), large_free(heap, three)));
    hak_large_drop(record_of(three));
    hak_add(&hak_purge.free_bytes, -6 * HAK_GRANULE_BYTES);
    hak_store_relaxed(&heap->kept.thief, hak_load_relaxed(&hak_epoch) + 1);
    assert_null(hak_kept_take(heap, 6, 390000));
    assert_int_equal(hak_load_relaxed(&heap->kept.thief), 0);
    assert_false(hak_large_is_kept(record_of(one)));
    assert_null(hak_kept_take(heap, 4, 200000));
    assert_true(large_free(heap, large_take(4)));
    heap_end(heap);
    AUDIT();
}

/* Two threads free one block at once, and neither sees the other. */
static void a_span_that_two_threads_keep_is_found_by_the_second(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make(), *other = heap_make();
    struct hak_granule *record = record_of(large_take(4));
    assert_true(large_free(heap, record->start));
    hak_large_words_set(record, hak_large_usable(record)); /* the other's free read it before */
    assert_true(hak_kept_give(other, record));
    room_misused = NULL;
    if (!setjmp(room_caught)) hak_kept_take(heap, 4, 200000);
    assert_ptr_equal(room_misused, record->start);
    hak_kept_leave(heap);
    room_misused = NULL; /* or by the free, if that comes late */
    if (!setjmp(room_caught)) hak_kept_give(heap, record);
    assert_ptr_equal(room_misused, record->start);
    heap->kept.reserved = 0; /* counted once for each, and there is one */
    hak_add(&hak_purge.free_bytes, -4 * HAK_GRANULE_BYTES);
    heap_end(other);
    heap_end(heap);
    AUDIT();
}

/* A thread keeps and takes, another steals all the time: each block is whole, none is handed out twice. */
static struct hak_heap *stolen_from;
static hak_atomic_u32 steals, is_over;

static void *steal(void *unused) {
    (void)unused;
    while (!hak_load_relaxed(&is_over)) {
        hak_kept_steal(stolen_from);
        hak_add(&steals, 1);
    }
    return NULL;
}

static void a_thief_and_the_owner_never_both_have_it(void **state) {
    (void)state;
    struct hak_heap *heap = stolen_from = heap_make();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, steal, NULL), 0);
    unsigned reused = 0;
    for (unsigned i = 0; i < 200000; i++) {
        size_t granules = 1 + i % 3;
        uint32_t *block = hak_kept_take(heap, granules, granules * HAK_GRANULE_BYTES);
        if (block) reused++;
        else block = large_take(granules);
        uint32_t *second = hak_kept_take(heap, granules, granules * HAK_GRANULE_BYTES);
        if (!second) second = large_take(granules);
        block[0] = block[granules * 16000] = i;
        second[0] = second[granules * 16000] = ~i;
        REQUIRE(block[0] == i && block[granules * 16000] == i);
        large_free(heap, block);
        large_free(heap, second);
    }
    while (hak_load_relaxed(&steals) < 100) {
    }
    hak_store_relaxed(&is_over, 1);
    pthread_join(thread, NULL);
    assert_true(reused > 0);
    heap_end(heap);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_span_freed_last_comes_first_and_only_at_its_size),
        cmocka_unit_test(a_span_serves_sizes_up_to_a_quarter_less),
        cmocka_unit_test(what_is_kept_goes_back_rather_than_memory_is_touched_for_the_first_time),
        cmocka_unit_test(a_kept_block_is_nobodys_and_cannot_be_freed_again),
        cmocka_unit_test(it_keeps_a_bounded_number_and_never_over_the_bound),
        cmocka_unit_test(what_was_taken_again_is_not_free_while_its_thread_waits),
        cmocka_unit_test(who_soon_misses_much_that_was_refused_keeps_more),
        cmocka_unit_test(switched_off_nothing_is_kept),
        cmocka_unit_test(what_is_kept_counts_as_free_and_goes_back_with_time),
        cmocka_unit_test(a_reused_block_that_was_fresh_is_cleared_for_calloc),
        cmocka_unit_test(what_was_stolen_is_not_handed_out),
        cmocka_unit_test(a_thief_leaves_when_the_thread_is_at_it_or_there_is_no_barrier),
        cmocka_unit_test(under_a_thief_the_thread_does_without_and_one_of_the_parent_is_none),
        cmocka_unit_test(a_span_that_two_threads_keep_is_found_by_the_second),
        cmocka_unit_test(a_thief_and_the_owner_never_both_have_it),
        cmocka_unit_test(each_size_gives_what_was_freed_last_of_it), /* memory is touched already: others above count on what is not */
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
