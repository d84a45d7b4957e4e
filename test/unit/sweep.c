/* sweep.c - free pages that stay unused go back on visits; a collection gives back whatever it can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/kept.h"
#include "os/os.h"
#include "rules/options.h"

#include <string.h>
#include <unistd.h>

enum { BLOCKS = 4000 };
static void *blocks[BLOCKS];

static void take_all(struct hak_heap *heap, uint64_t seed) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = block_take(heap, 1 + (unsigned)(dice_next(&seed) % (HAK_CLASS_COUNT - 1)));
        memset(blocks[i], 1, hak_slab_class(slab_of(blocks[i]))->block_bytes);
    }
}

static void a_collection_leaves_nothing_free_resident(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    struct hak_heap *heap = heap_make();
    take_all(heap, 3);
    for (unsigned i = 0; i < BLOCKS; i++) block_give(heap, blocks[i]);
    uint64_t free_bytes = (uint64_t)free_now();
    assert_true(free_bytes > 1 << 20);
    assert_true(hak_heap_collect(heap) >= free_bytes);
    assert_int_equal(free_now(), 0);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_slabs(c), 0);
    heap_end(heap);
    hak_options.free_max_mb = 6;
    AUDIT();
}

static void a_collection_returns_pages_between_live_blocks_and_keeps_these(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    struct hak_heap *heap = heap_make();
    take_all(heap, 5);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (i % 50) block_give(heap, blocks[i]);
    hak_heap_collect(heap);
    AUDIT();
    assert_int_equal(free_now(), 0);
    for (unsigned i = 0; i < BLOCKS; i += 50) {
        const char *block = blocks[i];
        for (size_t k = 0; k < hak_slab_class(slab_of(block))->block_bytes; k++) REQUIRE(block[k] == 1);
        block_give(heap, blocks[i]);
    }
    heap_end(heap);
    hak_options.free_max_mb = 6;
}

static void a_collection_reaches_dead_heaps(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make(), *dead = heap_make();
    take_all(dead, 7);
    heap_end(dead);
    for (unsigned i = 0; i < BLOCKS; i++) block_give(heap, blocks[i]);
    hak_heap_collect(heap);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_slabs(c), 0);
    heap_end(heap);
    AUDIT();
}

/* Another heap's slabs: their pages go, their lists and counts are not touched. */
static void a_sweep_returns_other_heaps_pages(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    struct hak_heap *other = heap_make();
    take_all(other, 11);
    for (unsigned i = 0; i < BLOCKS; i += 2) block_give(other, blocks[i]);
    hak_sweep_all(true);
    assert_int_equal(free_now(), 0);
    AUDIT();
    for (unsigned i = 1; i < BLOCKS; i += 2) {
        assert_int_equal(*(char *)blocks[i], 1);
        hak_slab_check(slab_of(blocks[i]));
        block_give(other, blocks[i]);
    }
    heap_end(other);
    hak_options.free_max_mb = 6;
    AUDIT();
}

static void visits_return_what_stays_free(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    hak_options.purge_delay_ms = 40;
    struct hak_heap *heap = heap_make();
    take_all(heap, 13);
    for (unsigned i = 0; i < BLOCKS; i++) block_give(heap, blocks[i]);
    assert_true(free_now() > 1 << 20);
    for (unsigned i = 0; i < 200 && free_now() > 0; i++) { /* two delays, if nobody disturbs */
        usleep(10000);
        heap->tick = 0;
        hak_visit_chores(heap);
    }
    assert_int_equal(free_now(), 0);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    heap_end(heap);
    AUDIT();
}

/* Not longer because of what the tests before touched again. */
static void delay_is(unsigned ms) {
    hak_options.purge_delay_ms = ms;
    hak_store_relaxed(&hak_purge.delay_ms, 0);
}

static void chores_for_ms(struct hak_heap *heap, uint64_t ms) {
    for (uint64_t end = hak_os_clock_ms() + ms; hak_os_clock_ms() < end;) {
        usleep(5000);
        heap->tick = 0;
        hak_visit_chores(heap);
    }
}

/* While this heap visits for so long; but for a thread that did not run until at_most_ms. */
static void expect_nothing_returned(struct hak_heap *heap, uint64_t start_ms, uint64_t ms, uint64_t at_most_ms) {
    uint64_t before = hak_load_relaxed(&hak_purge.returned_bytes);
    chores_for_ms(heap, ms);
    uint64_t after = hak_load_relaxed(&hak_purge.returned_bytes);
    if (hak_os_clock_ms() - start_ms < at_most_ms) assert_int_equal(after, before);
}

/* In a heap of few chunks a step is less than one chunk's way: each once went a whole one, round in 20 ms. */
static void nothing_goes_back_before_one_delay(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    hak_options.purge_delay_ms = 2000;
    struct hak_heap *heap = heap_make();
    take_all(heap, 17);
    chores_for_ms(heap, 50); /* the hand is where it should be by now */
    uint64_t start_ms = hak_os_clock_ms();
    for (unsigned i = 0; i < BLOCKS; i++) block_give(heap, blocks[i]);
    expect_nothing_returned(heap, start_ms, 400, 1900);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    hak_heap_collect(heap);
    heap_end(heap);
    AUDIT();
}

/* After a pause the hand has a whole round to make up for; what it then passed is not passed again at once. */
static void nothing_goes_back_right_after_a_pause(void **state) {
    (void)state;
    enum { CHUNKS = 10 };
    hak_options.free_max_mb = 1000;
    size_t spans[CHUNKS], dirty;
    for (unsigned i = 0; i < CHUNKS; i++) spans[i] = hak_span_take(HAK_CHUNK_GRANULES, 1, &dirty);
    delay_is(400);
    struct hak_heap *heap = heap_make();
    chores_for_ms(heap, 50);
    usleep(900000);
    uint64_t start_ms = hak_os_clock_ms();
    for (unsigned i = 0; i < CHUNKS; i++)
        if (spans[i] != HAK_NO_GRANULE) hak_span_give(spans[i], HAK_CHUNK_GRANULES, HAK_SPAN_DIRTY);
    expect_nothing_returned(heap, start_ms, 150, 190);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    hak_heap_collect(heap);
    heap_end(heap);
    AUDIT();
}

static unsigned looked_at_since(uint64_t start_ms, uint64_t now_ms) {
    unsigned count = 0;
    for (size_t number = 0; number < hak_load_relaxed(&hak_chunk_top); number++)
        count += hak_unit_ready(number) &&
                 (uint32_t)now_ms - hak_load_relaxed(&hak_chunk_at(number)->looked_ms) <= now_ms - start_ms;
    return count;
}

/* One visit of a program with a gigabyte once took 3 ms after a pause. */
static void a_round_is_made_up_for_in_steps(void **state) {
    (void)state;
    enum { CHUNKS = 300, AT_MOST = 66 };
    size_t spans[CHUNKS], dirty;
    hak_options.free_max_mb = 1000;
    for (unsigned i = 0; i < CHUNKS; i++) {
        spans[i] = hak_span_take(HAK_CHUNK_GRANULES, 1, &dirty);
        if (spans[i] == HAK_NO_GRANULE) fail_msg("no address space");
    }
    for (unsigned i = 0; i < CHUNKS; i++) hak_span_give(spans[i] + HAK_CHUNK_GRANULES - 1, 1, HAK_SPAN_DIRTY); /* there is something to look at */
    delay_is(100);
    struct hak_heap *heap = heap_make();
    chores_for_ms(heap, 50);
    usleep(500000);
    uint64_t start_ms = hak_os_clock_ms();
    heap->tick = 0;
    hak_visit_chores(heap);
    unsigned at_once = looked_at_since(start_ms, hak_os_clock_ms());
    assert_in_range(at_once, 1, AT_MOST);
    for (unsigned i = 0; i < 1000 && looked_at_since(start_ms, hak_os_clock_ms()) < CHUNKS; i++) chores_for_ms(heap, 1);
    assert_true(looked_at_since(start_ms, hak_os_clock_ms()) >= CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++) hak_span_give(spans[i], HAK_CHUNK_GRANULES - 1, HAK_SPAN_AS_IT_WAS);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    hak_heap_collect(heap);
    heap_end(heap);
    AUDIT();
}

/* After a block of 20 GB had come and gone, pages that became free went back after 63 seconds. */
static void chunks_in_which_nothing_is_do_not_hold_the_hand_up(void **state) {
    (void)state;
    enum { CHUNKS = 4000, MOST_MS = 1500 };
    size_t dirty, span = hak_span_take((size_t)CHUNKS * HAK_CHUNK_GRANULES, 1, &dirty);
    if (span == HAK_NO_GRANULE) skip();
    hak_span_give(span, (size_t)CHUNKS * HAK_CHUNK_GRANULES, HAK_SPAN_AS_IT_WAS);
    hak_options.free_max_mb = 1000;
    delay_is(100);
    struct hak_heap *heap = heap_make();
    size_t granule = hak_span_take(1, 1, &dirty);
    hak_span_give(granule, 1, HAK_SPAN_DIRTY);
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    unsigned ticks = 0; /* of 20 ms each: a busy machine's time does not count */
    for (; ticks < MOST_MS / 20 && hak_load_relaxed(&chunk->dirty) >> granule % HAK_CHUNK_GRANULES & 1; ticks++) chores_for_ms(heap, 21);
    assert_in_range(ticks, 1, MOST_MS / 20 - 1);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    heap_end(heap);
    AUDIT();
}

/* A hand that passes by the last chunks is never seen to begin anew. */
static void what_an_idle_thread_keeps_goes_back_however_the_window_ends(void **state) {
    (void)state;
    enum { CHUNKS = 20, GRANULES = 16 };
    hak_options.free_max_mb = 1000;
    struct hak_heap *idle = heap_make(), *heap = heap_make();
    bool zeroed;
    size_t dirty;
    struct hak_granule *record = hak_granule_at(hak_granule_of(hak_large_take(NULL, GRANULES * HAK_GRANULE_BYTES, 1, 0, &zeroed)));
    size_t span = hak_span_take(CHUNKS * HAK_CHUNK_GRANULES, 1, &dirty);
    assert_int_not_equal(span, HAK_NO_GRANULE);
    delay_is(50);
    chores_for_ms(heap, 100);
    REQUIRE(hak_large_end(record));
    assert_true(hak_kept_give(idle, record));
    hak_store_relaxed(&idle->kept_ms, hak_os_clock_ms());
    for (unsigned ticks = 0; ticks < 50 && hak_load_relaxed(&idle->kept.reserved) != 0; ticks++) chores_for_ms(heap, 21);
    assert_int_equal(hak_load_relaxed(&idle->kept.reserved), 0);
    hak_span_give(span, CHUNKS * HAK_CHUNK_GRANULES, HAK_SPAN_AS_IT_WAS);
    hak_options.purge_delay_ms = 800;
    hak_options.free_max_mb = 6;
    heap_end(idle);
    heap_end(heap);
    AUDIT();
}

static void excess_is_taken_from_slabs_too(void **state) {
    (void)state;
    hak_options.free_max_mb = 1000;
    struct hak_heap *heap = heap_make();
    class_is_common(heap, HAK_SMALL_CLASS_MAX);
    for (unsigned i = 0; i < BLOCKS; i++) *(char *)(blocks[i] = block_take(heap, HAK_SMALL_CLASS_MAX)) = 1;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (i % 8) block_give(heap, blocks[i]);
    int64_t before = free_now();
    assert_true(before > 1 << 20);
    hak_options.free_max_mb = 0;
    for (unsigned i = 0; i < 100 && hak_purge_over(0); i++) hak_sweep_excess();
    assert_false(hak_purge_over(0));
    hak_options.free_max_mb = 6;
    for (unsigned i = 0; i < BLOCKS; i += 8) {
        assert_int_equal(*(char *)blocks[i], 1);
        block_give(heap, blocks[i]);
    }
    heap_end(heap);
    AUDIT();
}

/* Or the sweep would leave the page alone, and the slab's end would call it zero. */
static void no_block_goes_out_on_a_page_that_is_marked_as_returned(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2 * (HAK_CLASS_COUNT - 1); i++) {
        unsigned c = i / 2 + 1;
        struct hak_heap *heap = heap_make();
        hak_heap_collect(heap); /* slabs of memory that is not resident */
        heap->opened_bytes = (uint64_t)(i % 2) << 20; /* as one that has just begun; as one that has grown */
        class_is_common(heap, c);
        unsigned capacity = hak_classes[c].capacity, count = capacity < BLOCKS ? capacity : BLOCKS;
        unsigned some = capacity < 40 ? capacity / 2 : 20;
        for (unsigned k = 0; k < some; k++) blocks[k] = block_take(heap, c);
        for (unsigned k = 0; k < some; k++) block_give(heap, blocks[k]);
        for (unsigned k = 0; k < count; k++) {
            blocks[k] = block_take(heap, c);
            struct hak_slab *slab = slab_of(blocks[k]);
            size_t offset = (size_t)((char *)blocks[k] - hak_slab_start(slab));
            unsigned first = (unsigned)(offset >> slab->page_shift);
            unsigned last = (unsigned)((offset + hak_classes[c].block_bytes - 1) >> slab->page_shift);
            assert_int_equal(slab->returned & hak_word_mask(first, last - first + 1), 0);
        }
        for (unsigned k = 0; k < count; k++) block_give(heap, blocks[k]);
        heap_end(heap);
    }
    AUDIT();
}

static void a_counter_that_is_set_back_does_not_end_the_sweep(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    heap->tick = hak_os_ticks() + (UINT64_C(1) << 60);
    hak_sweep_clock(heap);
    assert_true(heap->tick < hak_os_ticks() + (UINT64_C(1) << 40));
    heap_end(heap);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collection_leaves_nothing_free_resident),
        cmocka_unit_test(a_collection_returns_pages_between_live_blocks_and_keeps_these),
        cmocka_unit_test(a_collection_reaches_dead_heaps),
        cmocka_unit_test(a_sweep_returns_other_heaps_pages),
        cmocka_unit_test(visits_return_what_stays_free),
        cmocka_unit_test(nothing_goes_back_before_one_delay),
        cmocka_unit_test(nothing_goes_back_right_after_a_pause),
        cmocka_unit_test(a_round_is_made_up_for_in_steps),
        cmocka_unit_test(chunks_in_which_nothing_is_do_not_hold_the_hand_up),
        cmocka_unit_test(what_an_idle_thread_keeps_goes_back_however_the_window_ends),
        cmocka_unit_test(excess_is_taken_from_slabs_too),
        cmocka_unit_test(no_block_goes_out_on_a_page_that_is_marked_as_returned),
        cmocka_unit_test(a_counter_that_is_set_back_does_not_end_the_sweep),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
