/* filled.c - which slabs count as filled, and that what is known is used up.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/slab_room.h"

#include "memory/ahead.h"
#include "memory/huge.h"
#include "slab/filled.h"

enum { SMALL = 4, LARGE = HAK_SMALL_CLASS_MAX + 20 };

static void what_was_handed_out_is_filled(void **state) {
    (void)state;
    struct hak_slab *full = slab_cut(SMALL), *begun = slab_cut(SMALL), *large = slab_cut(LARGE);
    slab_drain(full);
    slab_take(begun);
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 1);
    assert_int_equal(hak_filled_slabs(LARGE), 0);
    slab_drain(begun);
    slab_drain(large);
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 2);
    assert_int_equal(hak_filled_slabs(LARGE), 1);
    for (unsigned i = 0; i < hak_slab_class(full)->capacity; i++) block_give(full, i); /* it was in use once: its pages are there */
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 2);
    slab_end(full);
    slab_end(begun);
    slab_end(large);
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 2); /* of the moment when it was most */
    hak_filled_forget();
    assert_int_equal(hak_filled_slabs(SMALL), 0);
}

/* Of slabs that were cut before it was looked nothing may have been opened page by page: of those the words tell. */
static void a_resident_slab_is_judged_by_its_words(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(SMALL);
    hak_filled_forget();
    slab->frontier = UINT16_MAX;
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 0);
    slab_drain(slab);
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 1);
    slab_end(slab);
    hak_filled_forget();
}

static void pages_that_went_back_are_not_filled(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(SMALL);
    slab_drain(slab);
    slab->returned = 7; /* of 16 */
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 0);
    slab->returned = 1;
    hak_filled_look();
    assert_int_equal(hak_filled_slabs(SMALL), 1);
    slab->returned = 0;
    slab_end(slab);
    hak_filled_forget();
}

/* 512 KiB of slabs that were cut, or a sixteenth of what was filled. */
static void it_is_looked_as_the_program_grows(void **state) {
    (void)state;
    enum { EACH = 8 };
    struct hak_slab *slabs[EACH];
    hak_filled_start();
    for (unsigned i = 0; i < 2 * EACH; i++) { /* where memory is resident nothing grows */
        struct hak_slab *again = slab_cut(SMALL);
        slab_drain(again);
        slab_end(again);
    }
    assert_int_equal(hak_filled_slabs(SMALL), 0);
    hak_purge_spans(0);
    for (unsigned i = 0; i < EACH; i++) {
        assert_int_equal(hak_filled_slabs(SMALL), 0);
        slabs[i] = slab_cut(SMALL);
        slab_drain(slabs[i]);
    }
    assert_int_equal(hak_filled_slabs(SMALL), EACH - 1); /* before the last one was cut */
    for (unsigned i = 0; i < EACH; i++) slab_end(slabs[i]);
    hak_purge_spans(0);
    hak_filled_forget();
}

static void what_is_known_is_used_up(void **state) {
    (void)state;
    static struct hak_heap other;
    struct hak_slab *slabs[2];
    hak_purge_spans(0);
    hak_filled_believe(SMALL, 2);
    hak_filled_believe(LARGE, 0);
    hak_ahead_start(1);
    assert_null(hak_filled_cut(&heap, LARGE, HAK_GROWTH_SOME));
    assert_null(hak_filled_cut(&other, SMALL, HAK_GROWTH_LITTLE)); /* it may not fill it */
    slabs[0] = hak_filled_cut(&heap, SMALL, HAK_GROWTH_LITTLE);
    if (!slabs[0]) skip(); /* no huge pages here */
    slabs[1] = hak_filled_cut(&other, hak_pool_of(SMALL), HAK_GROWTH_SOME); /* a pool's slabs count as its class's */
    assert_non_null(slabs[1]);
    assert_null(hak_filled_cut(&heap, SMALL, HAK_GROWTH_SOME));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(hak_huge_at(hak_slab_granule(slabs[i])));
        assert_int_equal(slab_drain(slabs[i]), hak_slab_class(slabs[i])->capacity);
        slab_end(slabs[i]);
    }
    hak_ahead_end_now();
    hak_purge_spans(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_handed_out_is_filled),
        cmocka_unit_test(a_resident_slab_is_judged_by_its_words),
        cmocka_unit_test(pages_that_went_back_are_not_filled),
        cmocka_unit_test(it_is_looked_as_the_program_grows),
        cmocka_unit_test(what_is_known_is_used_up),
    };
    return cmocka_run_group_tests(tests, slab_room_start, NULL);
}
