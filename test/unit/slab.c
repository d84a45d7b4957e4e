/* slab.c - slabs of every class are cut, taken from, collected, claimed, ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/slab_room.h"

static struct hak_heap other_heap; /* nothing of it is used but its address */

static void a_new_slab_is_all_free_and_known_to_every_granule(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class *class = &hak_classes[c];
        int64_t used = hak_load_relaxed(&hak_purge.used_granules);
        struct hak_slab *slab = slab_cut(c);
        struct hak_row *row = hak_slab_row(slab);
        size_t granule = hak_slab_granule(slab);
        assert_int_equal(hak_load_relaxed(&hak_purge.used_granules) - used, class->granules);
        assert_ptr_equal(hak_slab_class(slab), class);
        assert_int_equal(slab->place, HAK_SLAB_CURRENT);
        assert_true(hak_slab_live(granule));
        assert_ptr_equal(hak_slab_named(hak_slab_name_of(slab)), slab);
        assert_int_equal(hak_row_out(row), 0);
        assert_int_equal(free_count(slab), class->capacity);
        hak_slab_check(slab);
        for (unsigned i = 0; i < class->granules; i++) {
            struct hak_granule *record = hak_granule_at(granule + i);
            assert_ptr_equal(hak_load_relaxed(&record->owner), hak_slab_owner_mark(&heap, slab->class_index));
            assert_int_equal(hak_slab_owners_middle(&heap, hak_load_relaxed(&record->owner)), c > HAK_SMALL_CLASS_MAX ? c : 0);
            assert_int_equal(hak_slab_owners_middle(&other_heap, hak_load_relaxed(&record->owner)), 0);
            assert_ptr_equal(record->words, row->word);
            assert_ptr_equal(record->start, hak_slab_start(slab));
            assert_true(record->reciprocal == class->reciprocal);
            assert_ptr_equal(hak_slab_of(record), slab);
        }
        for (unsigned i = 0; i < class->word_count; i++) assert_true(hak_load_relaxed(&hak_slab_remote(slab)[i]) == 0);
        slab_end(slab);
        assert_false(hak_slab_live(granule));
        for (unsigned i = 0; i < class->granules; i++) assert_null(hak_load_relaxed(&hak_granule_at(granule + i)->owner));
        assert_int_equal(hak_load_relaxed(&hak_purge.used_granules), used);
    }
}

static void every_block_is_taken_once_by_windows(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class *class = &hak_classes[c];
        struct hak_slab *slab = slab_cut(c);
        struct hak_row *row = hak_slab_row(slab);
        uint64_t seen[128] = { 0 }, word;
        unsigned total = 0, index;
        uint32_t count;
        assert_true(hak_slab_claim(slab));
        while ((word = slab_next(slab, &index, &count)) != 0) {
            assert_true(index < class->word_count && !(seen[index] & word));
            assert_true((word & ~hak_class_valid(class, index)) == 0); /* never the surplus */
            assert_int_equal(count, hak_word_count(word));
            assert_true(count <= hak_load_relaxed(&hak_shares[c].blocks));
            assert_true(hak_word_last(word) - hak_word_first(word) < hak_load_relaxed(&hak_shares[c].blocks));
            seen[index] |= word;
            total += count;
            assert_int_equal(hak_row_out(row), total);
            assert_int_equal(free_count(slab) + total, class->capacity);
        }
        hak_slab_unclaim(slab);
        assert_int_equal(total, class->capacity);
        slab_end(slab);
    }
}

/* Two classes take turns with two slabs each: every one of them comes back where its class was, with the pages that it had opened. */
static void a_slab_comes_where_one_of_its_class_ended(void **state) {
    (void)state;
    enum { A = 40, B = HAK_SMALL_CLASS_MAX }; /* both of four granules */
    if (hak_region.page_shift != 12) skip();
    assert_int_equal(hak_classes[A].granules, hak_classes[B].granules);
    hak_purge_spans(0);
    while (hak_slab_cut_again(&heap, A) || hak_slab_cut_again(&heap, B)) fail(); /* nothing of it is resident */
    opened = 1 << 20;
    struct hak_slab *slab[4] = { slab_cut(A), slab_cut(B), slab_cut(A), slab_cut(B) };
    uint64_t absent[4];
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned k = 0; k <= i; k++) slab_take(slab[i]);
        absent[i] = slab[i]->returned;
    }
    for (unsigned turn = 0; turn < 5; turn++) {
        for (unsigned i = 0; i < 4; i++) slab_end(slab[i]);
        for (unsigned i = 0; i < 4; i++) /* who ended last comes first */
            assert_ptr_equal(hak_slab_cut_again(&heap, i % 2 ? B : A), slab[i ^ 2]);
        for (unsigned i = 0; i < 4; i++) assert_true(slab[i]->returned == absent[i]);
        assert_null(hak_slab_cut_again(&heap, A));
    }
    size_t place = hak_slab_granule(slab[0]), count = hak_classes[A].granules, dirty;
    slab_end(slab[0]);
    assert_int_equal(hak_span_take(1, 1, &dirty), place); /* somebody has a part of it */
    assert_null(hak_slab_cut_again(&heap, A));
    hak_span_give(place, 1, HAK_SPAN_AS_IT_WAS);
    slab[0] = slab_cut(A);
    slab_end(slab[0]);
    hak_purge_span(hak_slab_granule(slab[0]), count); /* or it went back */
    assert_null(hak_slab_cut_again(&heap, A));
    for (unsigned i = 1; i < 4; i++) slab_end(slab[i]);
}

static void the_lowest_words_are_taken_again_when_a_quarter_below_is_free(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(4);
    slab->frontier = UINT16_MAX;
    for (unsigned taken = 0; taken < 3 * 64;) taken += slab_take(slab);
    assert_int_equal(slab->cursor, 2);
    for (unsigned i = 0; i < 47; i++) block_give(slab, i);
    slab_take(slab);
    assert_int_equal(slab->cursor, 3); /* 47 of 192: not a quarter */
    for (unsigned i = 47; i < 128; i++) block_give(slab, i);
    slab_take(slab);
    assert_int_equal(slab->cursor, 0);
    slab_end(slab);
}

static void free_and_out_are_the_capacity_whatever_happens(void **state) {
    (void)state;
    uint64_t dice = 29;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c += 3) {
        const struct hak_class *class = &hak_classes[c];
        struct hak_slab *slab = slab_cut(c);
        struct hak_row *row = hak_slab_row(slab);
        static unsigned held[4096];
        unsigned held_count = 0, posted = 0;
        for (unsigned step = 0; step < 600; step++) {
            unsigned what = (unsigned)(dice_next(&dice) % 4), index;
            uint32_t count;
            if (what == 0) {
                assert_true(hak_slab_claim(slab));
                uint64_t word = slab_next(slab, &index, &count);
                hak_slab_unclaim(slab);
                for (; word; word &= word - 1) held[held_count++] = index * 64 + hak_word_first(word);
            } else if (what < 3 && held_count) {
                unsigned k = (unsigned)(dice_next(&dice) % held_count), block = held[k];
                held[k] = held[--held_count];
                if (what == 1) {
                    block_give(slab, block);
                } else {
                    hak_or(&hak_slab_remote(slab)[block / 64], UINT64_C(1) << block % 64);
                    posted++;
                }
            } else {
                uint32_t collected = hak_slab_collect(slab);
                assert_int_equal(collected, posted);
                hak_row_arm(row, hak_row_out(row) - collected, 1);
                posted = 0;
            }
            assert_int_equal(hak_row_out(row), held_count + posted);
            assert_int_equal(free_count(slab) + hak_row_out(row), class->capacity);
            hak_slab_check(slab);
        }
        hak_slab_collect(slab);
        slab_end(slab);
    }
}

static void a_block_that_two_gave_back_is_found(void **state) {
    (void)state;
    for (volatile unsigned c = 1; c < HAK_CLASS_COUNT; c += 7) {
        struct hak_slab *slab = slab_cut(c);
        unsigned taken = slab_drain(slab), block = taken / 2;
        block_give(slab, block);
        hak_or(&hak_slab_remote(slab)[block / 64], UINT64_C(1) << block % 64);
        misused = NULL;
        if (!setjmp(caught)) hak_slab_collect(slab);
        assert_ptr_equal(misused, hak_slab_start(slab) + (size_t)block * hak_classes[c].block_bytes);
        slab_end(slab);
    }
}

static void a_block_that_a_stranger_gave_back_again_is_found_at_the_slabs_end(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(5);
    hak_or(&hak_slab_remote(slab)[1], 1);
    misused = NULL;
    if (!setjmp(caught)) slab_end(slab);
    assert_ptr_equal(misused, hak_slab_start(slab) + 64 * 80);
    hak_slab_unclaim(slab);
    hak_store_relaxed(&hak_slab_remote(slab)[1], 0);
    slab_end(slab);
}

static void a_claim_is_held_by_one(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(3);
    assert_true(hak_slab_claim(slab));
    assert_false(hak_slab_claim(slab));
    hak_slab_unclaim(slab);
    hak_store_relaxed(&slab->claim, hak_load_relaxed(&hak_epoch) + 1000); /* of a thread that vanished in a fork */
    assert_true(hak_slab_claim(slab));
    assert_false(hak_slab_claim(slab));
    hak_slab_unclaim(slab);
    slab_end(slab);
}

static void a_slab_changes_hands_in_every_granule(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(HAK_CLASS_COUNT - 1);
    hak_slab_give_claimed(slab, &other_heap);
    assert_ptr_equal(atomic_load(&slab->owner), &other_heap);
    for (unsigned i = 0; i < hak_slab_class(slab)->granules; i++)
        assert_ptr_equal(hak_load_relaxed(&hak_granule_at(hak_slab_granule(slab) + i)->owner), hak_slab_owner_mark(&other_heap, slab->class_index));
    slab_end(slab);
}

/* Mail for an earlier slab of this header lies in a mailbox: nothing is cut there until it was read. */
static void no_slab_is_cut_where_mail_is_under_way(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(1);
    slab_end(slab);
    atomic_store(&slab->mailed, hak_load_relaxed(&hak_epoch));
    struct hak_slab *other = slab_cut(1);
    assert_ptr_not_equal(other, slab);
    hak_purge_chunk(hak_slab_granule(slab) / HAK_CHUNK_GRANULES, true);
    assert_true(hak_slab_mailed(slab));
    atomic_store(&slab->mailed, 0);
    struct hak_slab *again = slab_cut(1);
    assert_ptr_equal(again, slab);
    slab_end(again);
    slab_end(other);
}

/* A forked child may have many such headers in a row; there is room behind them. */
static void mail_under_way_to_many_does_not_mean_no_room(void **state) {
    (void)state;
    enum { COUNT = 20 };
    struct hak_slab *slab[COUNT];
    for (unsigned i = 0; i < COUNT; i++) slab[i] = slab_cut(1);
    for (unsigned i = 0; i < COUNT; i++) {
        slab_end(slab[i]);
        atomic_store(&slab[i]->mailed, hak_load_relaxed(&hak_epoch));
    }
    struct hak_slab *other = slab_cut(1);
    assert_non_null(other);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_ptr_not_equal(other, slab[i]);
        atomic_store(&slab[i]->mailed, 0);
    }
    slab_end(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_slab_is_all_free_and_known_to_every_granule),
        cmocka_unit_test(every_block_is_taken_once_by_windows),
        cmocka_unit_test(the_lowest_words_are_taken_again_when_a_quarter_below_is_free),
        cmocka_unit_test(free_and_out_are_the_capacity_whatever_happens),
        cmocka_unit_test(a_block_that_two_gave_back_is_found),
        cmocka_unit_test(a_block_that_a_stranger_gave_back_again_is_found_at_the_slabs_end),
        cmocka_unit_test(a_claim_is_held_by_one),
        cmocka_unit_test(a_slab_changes_hands_in_every_granule),
        cmocka_unit_test(a_slab_comes_where_one_of_its_class_ended),
        cmocka_unit_test(no_slab_is_cut_where_mail_is_under_way),
        cmocka_unit_test(mail_under_way_to_many_does_not_mean_no_room),
    };
    return cmocka_run_group_tests(tests, slab_room_start, NULL);
}
