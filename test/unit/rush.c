/* rush.c - what a thread keeps apart while it loses races for granules, and that it is all there in the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/kept.h"

#include <pthread.h>

static int64_t free_bytes(void) { return hak_load_relaxed(&hak_purge.free_bytes); }
static int64_t used_granules(void) { return hak_load_relaxed(&hak_purge.used_granules); }
static int64_t live_bytes(void) { return hak_load_relaxed(&hak_large_live_bytes); }

static void who_loses_no_race_adds_at_once(void **state) {
    (void)state;
    struct hak_rush rush = { 0 };
    int64_t bytes = free_bytes(), used = used_granules(), live = live_bytes();
    hak_rush_turn(&rush, false);
    assert_false(hak_rush_is_on(&rush) || hak_rush_is_on(NULL));
    struct hak_rush *any[] = { &rush, NULL };
    for (unsigned i = 0; i < 2; i++) {
        hak_rush_note_free(any[i], 4096, -1);
        hak_rush_note_live(any[i], 1, 65536);
        assert_int_equal(free_bytes(), bytes + 4096);
        assert_int_equal(used_granules(), used - 1);
        assert_int_equal(live_bytes(), live + 65536);
        hak_rush_note_free(any[i], -4096, 1);
        hak_rush_note_live(any[i], -1, -65536);
        assert_true(hak_rush_takes_part(any[i], false) && hak_rush_takes_part(any[i], false) && hak_rush_takes_part(any[i], true));
    }
}

static void in_a_rush_sums_wait_within_a_mib(void **state) {
    (void)state;
    struct hak_rush rush = { 0 };
    int64_t bytes = free_bytes(), used = used_granules(), live = live_bytes();
    hak_rush_turn(&rush, true);
    assert_true(hak_rush_is_on(&rush));
    for (unsigned i = 0; i < 16; i++) {
        hak_rush_note_free(&rush, 65536, -1);
        hak_rush_note_live(&rush, -1, -65536);
    }
    assert_true(free_bytes() == bytes && used_granules() == used && live_bytes() == live);
    hak_rush_note_free(&rush, 65536, -1);
    assert_true(free_bytes() == bytes + 17 * 65536 && used_granules() == used - 17 && live_bytes() == live - 16 * 65536);
    hak_rush_note_live(&rush, 16, 16 * 65536);
    hak_rush_note_free(&rush, -17 * 65536, 17);
    unsigned parts = 0;
    for (unsigned i = 0; i < 80; i++) parts += hak_rush_takes_part(&rush, i % 2); /* a take, a give, a take */
    assert_int_equal(parts, 10);
    parts = 0;
    for (unsigned i = 0; i < 80; i++) parts += hak_rush_takes_part(&rush, true);
    assert_int_equal(parts, 10);
    for (unsigned i = 0; i < 3; i++) hak_rush_turn(&rush, false);
    assert_true(hak_rush_is_on(&rush));
    hak_rush_turn(&rush, false); /* four takes without a race */
    assert_false(hak_rush_is_on(&rush));
    assert_true(free_bytes() == bytes && used_granules() == used && live_bytes() == live);
    for (unsigned i = 0; i < 10000; i++) hak_rush_turn(&rush, true);
    assert_true(rush.heat <= 1024); /* it ends soon after the races do */
    hak_rush_note_free(&rush, 65536, -1); /* and without any take: in ten seconds, what waited being added in the first */
    hak_rush_tick(&rush);
    assert_true(hak_rush_is_on(&rush) && free_bytes() == bytes + 65536 && used_granules() == used - 1);
    for (unsigned i = 0; i < 10; i++) hak_rush_tick(&rush);
    assert_false(hak_rush_is_on(&rush));
    hak_rush_note_free(&rush, -65536, 1);
    rush.heat = 1;
    hak_store_relaxed(&hak_purge.crowded, 1);
    hak_rush_note_free(&rush, 65537, 0); /* many threads: 64 KiB each */
    assert_int_equal(free_bytes(), bytes + 65537);
    hak_store_relaxed(&hak_purge.crowded, 0);
    hak_rush_note_free(&rush, -65537, 0);
    hak_rush_flush(&rush);
}

static void a_heap_in_a_rush_keeps_more_spans_and_leaves_all(void **state) {
    (void)state;
    enum { EACH = 8, COUNT = 12 }; /* granules */
    struct hak_heap *heap = heap_make();
    struct hak_granule *records[COUNT];
    uint64_t kept[3];
    int64_t bytes = free_bytes(), used = used_granules(), live = live_bytes();
    for (unsigned turn = 0; turn < 3; turn++) {
        heap->rush.heat = turn == 1 ? 100 : 0; /* over again in the last */
        for (unsigned i = 0; i < COUNT; i++) {
            bool zeroed;
            char *block = hak_large_take(&heap->rush, (size_t)EACH << HAK_GRANULE_SHIFT, 1, 0, &zeroed);
            records[i] = hak_granule_at(hak_granule_of(block));
        }
        for (unsigned i = 0; i < COUNT; i++) {
            assert_true(hak_large_end(records[i]));
            if (!hak_kept_give(heap, records[i])) hak_large_finish(&heap->rush, records[i]);
        }
        kept[turn] = hak_load_relaxed(&heap->kept.bytes);
        if (turn < 2) hak_kept_flush(heap);
    }
    assert_int_equal(kept[0], 2 << 20); /* four of a size */
    assert_int_equal(kept[1], 4 << 20); /* eight */
    assert_int_equal(kept[2], 4 << 20); /* for it may come back */
    heap_end(heap);
    assert_true(heap->rush.free_bytes == 0 && heap->rush.live_bytes == 0);
    assert_true(used_granules() - used <= 1 && live_bytes() == live && free_bytes() >= bytes); /* a granule of the heap's */
    AUDIT();
}

/* Spans taken and given by many at once: nobody gets another's, and the sums are right in the end. */
enum { THREADS = 4, ROUNDS = 20000, SLOTS = 16 };
static void *take_and_give(void *seed) {
    struct hak_heap *heap = heap_make();
    struct hak_granule *slot[SLOTS] = { NULL };
    uint64_t dice = (uintptr_t)seed, races = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct hak_granule **one = &slot[dice_next(&dice) % SLOTS];
        bool zeroed;
        if (*one) {
            REQUIRE(*(uintptr_t *)(void *)(*one)->start == (uintptr_t)seed);
            REQUIRE(hak_large_end(*one));
            hak_large_finish(&heap->rush, *one);
        }
        char *block = hak_large_take(&heap->rush, (1 + dice_next(&dice) % 8) << HAK_GRANULE_SHIFT, 1, 0, &zeroed);
        REQUIRE(block != NULL);
        *(uintptr_t *)(void *)block = (uintptr_t)seed;
        *one = hak_granule_at(hak_granule_of(block));
        races += hak_rush_is_on(&heap->rush);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (!slot[i]) continue;
        REQUIRE(hak_large_end(slot[i]));
        hak_large_finish(&heap->rush, slot[i]);
    }
    heap_end(heap);
    return (void *)(uintptr_t)races;
}

static void sums_are_right_when_the_rush_is_over(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    heap_end(heap_make());
    int64_t live = live_bytes(), count = hak_load_relaxed(&hak_large_live_count);
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(live_bytes(), live);
    assert_int_equal(hak_load_relaxed(&hak_large_live_count), count);
    AUDIT(); /* the free and used sums among it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_loses_no_race_adds_at_once),
        cmocka_unit_test(in_a_rush_sums_wait_within_a_mib),
        cmocka_unit_test(a_heap_in_a_rush_keeps_more_spans_and_leaves_all),
        cmocka_unit_test(sums_are_right_when_the_rush_is_over),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
