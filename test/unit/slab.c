/* slab.c - slabs of every class are cut, taken from, collected, ended; their pages go back and come again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "base/word.h"
#include "heap/heap.h"
#include "memory/purge.h"
#include "rules/options.h"
#include "slab/slab.h"

#include <string.h>
#include <sys/mman.h>

static struct hak_heap heap, other_heap; /* nothing of them is used but their addresses */
static jmp_buf caught;
static const void *misused;

__attribute__((noreturn)) static void misuse(const char *function, const void *block) {
    assert_string_equal(function, "free");
    misused = block;
    longjmp(caught, 1);
}

static int start(void **state) {
    (void)state;
    room_region_start();
    hak_slab_misuse = misuse;
    hak_purge_on_empty_chunk = hak_slab_chunk_empty; /* as front/start.c does */
    return 0;
}

static uint64_t opened; /* bytes, as a heap counts them */

static struct hak_slab *slab_cut(unsigned c) {
    struct hak_slab *slab = hak_slab_cut(&heap, c);
    assert_non_null(slab);
    return slab;
}

/* As a visit takes: the plain way where that will do. */
static uint64_t slab_next(struct hak_slab *slab, unsigned *index, uint32_t *count) {
    struct hak_row *row = hak_slab_row(slab);
    hak_slab_turn_claimed(slab, row);
    uint64_t word = hak_slab_take_plain_claimed(slab, row, count);
    if (!word) word = hak_slab_take_claimed(slab, row, count, NULL, &opened);
    *index = slab->cursor;
    return word;
}

/* Takes all its blocks; gives how many. */
static unsigned slab_drain(struct hak_slab *slab) {
    unsigned index, taken = 0;
    uint32_t count;
    assert_true(hak_slab_claim(slab));
    while (slab_next(slab, &index, &count)) taken += count;
    hak_slab_unclaim(slab);
    return taken;
}

static unsigned free_count(const struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    unsigned count = 0;
    for (unsigned i = 0; i < class->capacity; i++) count += hak_load_relaxed(&hak_slab_row(slab)->word[i / 64]) >> i % 64 & 1;
    return count;
}

/* As its owner frees: the bit, and the count. */
static void block_give(struct hak_slab *slab, unsigned block) {
    struct hak_row *row = hak_slab_row(slab);
    hak_or(&row->word[block / 64], UINT64_C(1) << block % 64);
    hak_row_arm(row, hak_row_out(row) - 1, 1);
}

static void slab_end(struct hak_slab *slab) {
    struct hak_row *row = hak_slab_row(slab);
    for (unsigned i = 0; i < hak_slab_class(slab)->word_count; i++) hak_or(&row->word[i], hak_class_valid(hak_slab_class(slab), i));
    hak_row_arm(row, 0, 0);
    assert_true(hak_slab_claim(slab));
    hak_slab_release_claimed(slab, NULL);
}

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

static uint32_t slab_take(struct hak_slab *slab) {
    unsigned index;
    uint32_t count = 0;
    assert_true(hak_slab_claim(slab));
    slab_next(slab, &index, &count);
    hak_slab_unclaim(slab);
    return count;
}

/* Of memory that was used in part, what was not is known to be absent: the bound and huge pages go by that. */
static void of_a_new_slab_the_clean_granules_are_absent(void **state) {
    (void)state;
    unsigned c = HAK_CLASS_COUNT - 1, count = hak_classes[c].granules;
    hak_purge_spans(0);
    struct hak_slab *slab = slab_cut(c);
    assert_true(slab->returned == hak_slab_pages(hak_slab_class(slab)));
    size_t granule = hak_slab_granule(slab), number = granule / HAK_CHUNK_GRANULES;
    slab->returned = hak_slab_pages(hak_slab_class(slab)) & ~UINT64_C(0xff); /* two granules of it were touched */
    slab_end(slab);
    uint64_t dirty = hak_load_relaxed(&hak_chunk_at(number)->dirty) >> granule % HAK_CHUNK_GRANULES & hak_word_mask(0, count);
    assert_true(dirty == 3);
    slab = slab_cut(c);
    assert_int_equal(hak_slab_granule(slab), granule);
    assert_true(slab->returned == (hak_slab_pages(hak_slab_class(slab)) & ~UINT64_C(0xff)));
    slab_end(slab);
}

static int64_t absent_now(void) { return hak_load_relaxed(&hak_purge.absent_bytes); }
static int64_t free_now(void) { return hak_load_relaxed(&hak_purge.free_bytes); }

/* What a slab never opened, the next one there knows to be absent, whatever its class and its pages are; and it is no free memory. */
static void what_a_slab_left_alone_is_absent_for_the_next(void **state) {
    (void)state;
    enum { SMALL = HAK_SMALL_CLASS_MAX, LARGE = HAK_CLASS_COUNT - 1 }; /* 256 KiB of 4 KiB pages, 1 MiB of 16 KiB ones */
    if (hak_region.page_shift != 12) skip();
    hak_purge_spans(0);
    opened = 0;
    int64_t free_before = free_now(), absent_before = absent_now();
    struct hak_slab *slab = slab_cut(SMALL);
    assert_int_equal(slab_take(slab), 4);
    assert_int_equal(absent_now() - absent_before, (256 - 4) << 10);
    slab_end(slab);
    assert_int_equal(absent_now(), absent_before);
    assert_int_equal(free_now() - free_before, 4 << 10);

    assert_ptr_equal(slab_cut(SMALL), slab);
    assert_int_equal(free_now(), free_before);
    assert_true(slab->returned == (~UINT64_C(0) & ~UINT64_C(1)));
    slab_end(slab);
    assert_int_equal(free_now() - free_before, 4 << 10);

    assert_ptr_equal(slab_cut(LARGE), slab);
    assert_int_equal(free_now(), free_before);
    assert_true(slab->returned == (~UINT64_C(0) & ~UINT64_C(1)));
    unsigned count = slab_take(slab), pages = (count * hak_classes[LARGE].block_bytes) >> 14;
    assert_true(slab->returned == ~hak_word_mask(0, pages));
    slab_end(slab);
    assert_int_equal(free_now() - free_before, pages << 14);

    assert_ptr_equal(slab_cut(SMALL), slab);
    assert_true(slab->returned == (pages * 4 < 64 ? ~hak_word_mask(0, pages * 4) : 0));
    slab_end(slab);
    assert_int_equal(free_now() - free_before, pages << 14);
    assert_int_equal(absent_now(), absent_before);
    hak_purge_spans(0);
    assert_int_equal(free_now(), free_before);
}

/* A block was there of which little was touched, and nobody looked: who cuts a slab does. */
static void what_a_sparse_block_left_alone_is_absent_for_the_next(void **state) {
    (void)state;
    if (hak_region.page_shift != 12 || getenv("HAK_TEST_EMULATED")) skip(); /* qemu-user answers mincore for its own pages */
    hak_purge_spans(0);
    int64_t free_before = free_now(), absent_before = absent_now();
    unsigned count = hak_classes[HAK_SMALL_CLASS_MAX].granules;
    size_t dirty, granule = hak_span_take(count, 1, &dirty);
    for (unsigned page = 3; page < 64; page += 30) hak_granule_address(granule)[page << 12] = 1;
    hak_span_leave_unseen(granule, count);
    hak_span_give(granule, count, HAK_SPAN_DIRTY);
    assert_int_equal(free_now() - free_before, count << HAK_GRANULE_SHIFT);
    struct hak_slab *slab = slab_cut(HAK_SMALL_CLASS_MAX);
    assert_int_equal(hak_slab_granule(slab), granule);
    assert_true(slab->returned == ~(UINT64_C(1) << 3 | UINT64_C(1) << 33 | UINT64_C(1) << 63));
    assert_int_equal(free_now(), free_before);
    slab_end(slab);
    assert_int_equal(free_now() - free_before, 3 << 12);
    hak_purge_spans(0);
    assert_int_equal(free_now(), free_before);
    assert_int_equal(absent_now(), absent_before);
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

/* Of a slab that is all in use every other page goes back, and the slab ends: to open them again in the next one is to touch them
 * again. What was never there is not. */
static void what_went_back_of_a_slab_is_touched_again_in_the_next(void **state) {
    (void)state;
    enum { CLASS = HAK_SMALL_CLASS_MAX };
    if (hak_region.page_shift != 12) skip();
    static const struct { unsigned every; uint64_t expected; } cases[] = { { 2, 128 << 10 }, { 0, 0 } };
    for (unsigned k = 0; k < 2; k++) {
        hak_purge_spans(0);
        struct hak_slab *slab = slab_cut(CLASS);
        size_t granule = hak_slab_granule(slab), dirty;
        slab_end(slab);
        assert_int_equal(hak_span_take(hak_classes[CLASS].granules, 1, &dirty), granule); /* what went back in earlier tests is forgotten */
        hak_span_give(granule, hak_classes[CLASS].granules, HAK_SPAN_CLEAN);
        assert_ptr_equal(slab_cut(CLASS), slab);
        opened = 0;
        if (cases[k].every) {
            slab_drain(slab);
            for (unsigned i = 0; i < hak_classes[CLASS].capacity; i++)
                if (i / 4 % cases[k].every == 0) block_give(slab, i);
            assert_true(hak_slab_claim(slab));
            assert_int_equal(hak_slab_sweep_claimed(slab, true), cases[k].expected);
            hak_slab_unclaim(slab);
        } else {
            slab_take(slab);
        }
        slab_end(slab);
        assert_ptr_equal(slab_cut(CLASS), slab);
        uint64_t before = hak_load_relaxed(&hak_purge.retouched_bytes);
        slab_drain(slab);
        assert_int_equal(hak_load_relaxed(&hak_purge.retouched_bytes) - before, cases[k].expected);
        slab_end(slab);
    }
    hak_purge_spans(0);
}

static void what_was_never_handed_out_is_opened_by_the_page(void **state) {
    (void)state;
    opened = UINT64_C(1) << 30; /* a large heap's */
    struct hak_slab *slab = slab_cut(HAK_SMALL_CLASS_MAX);
    slab->frontier = 0; /* as in pages that nobody used */
    assert_int_equal(slab_take(slab), 4);
    assert_int_equal(slab_take(slab), 4);
    for (unsigned i = 0; i < 8; i++) block_give(slab, i);
    assert_int_equal(slab_take(slab), 8); /* as long as these are a quarter of a window, nothing else is opened */
    for (unsigned i = 0; i < 8; i += 4) block_give(slab, i);
    assert_int_equal(slab_take(slab), 2 + 4);
    assert_int_equal(slab->frontier, 12);
    slab_end(slab);
    opened = 0;
    slab = slab_cut(HAK_SMALL_CLASS_MAX);
    slab->frontier = 0;
    while (opened < 64 << 10) assert_int_equal(slab_take(slab), 4);
    assert_int_equal(slab->frontier, 64);
    slab_end(slab);
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

/* --- pages --- */

/* Some blocks are free by the owner's bits, some by strangers'; returns nothing that the slab itself keeps. */
static void blocks_free_at_random(struct hak_slab *slab, uint64_t *dice, unsigned held_per_1000) {
    for (unsigned i = 0; i < hak_slab_class(slab)->capacity; i++) {
        if (dice_next(dice) % 1000 < held_per_1000) continue;
        if (dice_next(dice) % 4) block_give(slab, i);
        else hak_or(&hak_slab_remote(slab)[i / 64], UINT64_C(1) << i % 64);
    }
}

static bool block_is_held(const struct hak_slab *slab, unsigned block) {
    return !((hak_load_relaxed(&hak_slab_row(slab)->word[block / 64]) | hak_load_relaxed(&hak_slab_remote(slab)[block / 64])) >> block % 64 & 1);
}

/* Page by page and block by block, without the reciprocal. */
static uint64_t pages_naive(const struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    unsigned shift = hak_slab_page_shift(class);
    uint64_t held = 0;
    for (unsigned block = 0; block < class->capacity; block++) {
        if (!block_is_held(slab, block)) continue;
        size_t from = (size_t)block * class->block_bytes, to = from + class->block_bytes - 1;
        for (size_t page = from >> shift; page <= to >> shift; page++) held |= UINT64_C(1) << page;
    }
    return ~held & hak_slab_pages(class);
}

static void pages_are_those_that_no_held_block_touches(void **state) {
    (void)state;
    uint64_t dice = 31;
    const unsigned held_per_1000[] = { 0, 1, 3, 10, 30, 100, 500, 1000 };
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_slab *slab = slab_cut(c);
        const struct hak_class *class = &hak_classes[c];
        assert_int_equal(hak_word_count(hak_slab_pages(class)) << hak_slab_page_shift(class), class->granules * HAK_GRANULE_BYTES);
        for (unsigned i = 0; i < sizeof held_per_1000 / sizeof *held_per_1000; i++) {
            slab_drain(slab);
            blocks_free_at_random(slab, &dice, held_per_1000[i]);
            assert_true(hak_slab_free_pages_claimed(slab) == pages_naive(slab));
            hak_row_arm(hak_slab_row(slab), hak_row_out(hak_slab_row(slab)) - hak_slab_collect(slab), 1);
            assert_true(hak_slab_free_pages_claimed(slab) == pages_naive(slab));
        }
        slab_end(slab);
    }
}

static bool page_resident(const char *page) {
    unsigned char resident = 0;
    assert_int_equal(mincore((void *)(uintptr_t)page, (size_t)1 << hak_region.page_shift, &resident), 0);
    return resident & 1;
}

static void returned_pages_are_not_resident_and_the_others_keep_their_contents(void **state) {
    (void)state;
    bool emulated = getenv("HAK_TEST_EMULATED") != NULL; /* qemu-user answers mincore for its own pages */
    size_t page_bytes = (size_t)1 << hak_region.page_shift;
    uint64_t dice = 37;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c += 2) {
        struct hak_slab *slab = slab_cut(c);
        const struct hak_class *class = &hak_classes[c];
        char *first = hak_slab_start(slab);
        slab_drain(slab);
        unsigned shift = hak_slab_page_shift(class);
        memset(first, 0x5a, hak_round_up((size_t)class->capacity * class->block_bytes, (size_t)1 << shift));
        blocks_free_at_random(slab, &dice, class->capacity > 500 ? 5 : 100);
        uint64_t pages = pages_naive(slab), absent_before = (uint64_t)hak_load_relaxed(&hak_purge.absent_bytes);
        uint64_t unused = slab->returned; /* behind the last block, where its memory was clean */
        assert_true(hak_slab_claim(slab));
        size_t bytes = hak_slab_sweep_claimed(slab, true);
        assert_int_equal(bytes, (size_t)hak_word_count(pages & ~unused) << shift);
        assert_true(slab->returned == pages);
        assert_int_equal((uint64_t)hak_load_relaxed(&hak_purge.absent_bytes) - absent_before, bytes);
        assert_int_equal(hak_slab_sweep_claimed(slab, true), 0); /* once is enough */
        hak_slab_unclaim(slab);
        for (size_t at = 0; at < (size_t)class->granules * HAK_GRANULE_BYTES; at += page_bytes) {
            bool returned = pages >> (at >> shift) & 1;
            bool was_read = unused >> (at >> shift) & 1; /* by the class before: the kernel's page of zeros is there */
            if (!emulated && !was_read) REQUIRE(page_resident(first + at) == !returned);
            for (size_t i = 0; i < page_bytes; i++) REQUIRE(first[at + i] == (returned ? 0 : 0x5a));
        }
        hak_slab_collect(slab);
        slab_end(slab);
    }
}

static void a_sweep_returns_what_was_free_at_the_last_one_too(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(HAK_CLASS_COUNT - 1);
    const struct hak_class *class = hak_slab_class(slab);
    unsigned all = slab_drain(slab), shift = hak_slab_page_shift(class);
    for (unsigned i = 0; i < all / 2; i++) block_give(slab, i);
    assert_true(hak_slab_claim(slab));
    assert_int_equal(hak_slab_sweep_claimed(slab, false), 0);
    hak_slab_unclaim(slab);
    unsigned index;
    uint32_t count = 0;
    assert_true(hak_slab_claim(slab));
    slab->cursor = 0;
    uint64_t word = slab_next(slab, &index, &count); /* warm again */
    size_t bytes = hak_slab_sweep_claimed(slab, false);
    hak_slab_unclaim(slab);
    assert_true(word != 0 && count < all / 2);
    assert_int_equal(bytes, (size_t)(all / 2 - count) * class->block_bytes >> shift << shift);
    slab_end(slab);
}

static void taken_blocks_count_their_pages_as_used_again(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c += 4) {
        struct hak_slab *slab = slab_cut(c);
        const struct hak_class *class = hak_slab_class(slab);
        unsigned all = slab_drain(slab);
        for (unsigned i = 0; i < all; i++) block_give(slab, i);
        int64_t absent = hak_load_relaxed(&hak_purge.absent_bytes);
        assert_true(hak_slab_claim(slab));
        hak_slab_sweep_claimed(slab, true);
        hak_slab_unclaim(slab);
        assert_true(slab->returned == hak_slab_pages(class) && slab->counted_pages == 0);
        assert_int_equal(slab_drain(slab), all);
        /* but for what lies behind the last block */
        uint64_t behind = ~hak_word_mask(0, (unsigned)(((size_t)all * class->block_bytes - 1) >> hak_slab_page_shift(class)) + 1);
        assert_true((slab->returned & ~behind) == 0);
        assert_int_equal(hak_load_relaxed(&hak_purge.absent_bytes) - absent,
                         (int64_t)hak_word_count(slab->returned) << hak_slab_page_shift(class));
        slab_end(slab);
    }
}

/* A slab where spans once went back: its pages are touched again as they are opened, not all at the cut. Cut and ended over and over, with a
 * block of it taken each time, 200 threads seemed to touch five times what had gone back. */
static void a_slab_touches_again_what_of_it_is_opened(void **state) {
    (void)state;
    enum { CLASS = 20 }; /* of 256 KiB */
    hak_purge_spans(0);
    struct hak_slab *slab = slab_cut(CLASS);
    slab_drain(slab);
    slab_end(slab);
    hak_purge_spans(0);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t before = hak_load_relaxed(&hak_purge.retouched_bytes);
        assert_ptr_equal(slab_cut(CLASS), slab);
        assert_int_equal(hak_load_relaxed(&hak_purge.retouched_bytes), before);
        unsigned index;
        uint32_t count;
        assert_true(hak_slab_claim(slab));
        assert_true(slab_next(slab, &index, &count) != 0);
        hak_slab_unclaim(slab);
        uint64_t again = hak_load_relaxed(&hak_purge.retouched_bytes) - before, most = (count + 1) * hak_slab_class(slab)->block_bytes;
        assert_true(again > 0 && again <= hak_round_up(most, 4096) + 4096);
        slab_end(slab);
        hak_purge_spans(0);
    }
}

static void free_pages_are_counted_until_blocks_are_taken(void **state) {
    (void)state;
    uint64_t bound = hak_options.free_max_mb;
    struct hak_slab *slab = slab_cut(40);
    const struct hak_class *class = hak_slab_class(slab);
    unsigned all = slab_drain(slab), shift = hak_slab_page_shift(class);
    for (unsigned i = 0; i < all; i++) block_give(slab, i);
    int64_t before = hak_load_relaxed(&hak_purge.free_bytes);
    hak_options.free_max_mb = 1000; /* under its bound: counted, kept */
    assert_true(hak_slab_claim(slab));
    assert_int_equal(hak_slab_account_claimed(slab, ~UINT64_C(0), NULL), 0);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes) - before, (int64_t)hak_word_count(hak_slab_pages(class)) << shift);
    unsigned index;
    uint32_t count;
    assert_true(slab_next(slab, &index, &count) != 0);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), before);
    hak_slab_unclaim(slab);
    hak_options.free_max_mb = bound;
    slab_end(slab);
}

static void an_ended_slabs_metadata_go_back_and_are_whole_again(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(1);
    size_t granule = hak_slab_granule(slab), number = granule / HAK_CHUNK_GRANULES;
    slab_drain(slab); /* so that its memory is dirty: it is in returning it that the chunk is found empty */
    slab_end(slab);
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(number)->used), 0);
    hak_purge_chunk(number, true);
    assert_null(atomic_load(&hak_slab_at(granule)->owner));
    assert_false(hak_slab_mailed(hak_slab_at(granule)));
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(number)->used), 0);
    slab = slab_cut(1);
    assert_int_equal(hak_slab_granule(slab), granule);
    assert_int_equal(slab_drain(slab), hak_classes[1].capacity);
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
        cmocka_unit_test(of_a_new_slab_the_clean_granules_are_absent),
        cmocka_unit_test(what_a_slab_left_alone_is_absent_for_the_next),
        cmocka_unit_test(what_a_sparse_block_left_alone_is_absent_for_the_next),
        cmocka_unit_test(what_went_back_of_a_slab_is_touched_again_in_the_next),
        cmocka_unit_test(what_was_never_handed_out_is_opened_by_the_page),
        cmocka_unit_test(the_lowest_words_are_taken_again_when_a_quarter_below_is_free),
        cmocka_unit_test(free_and_out_are_the_capacity_whatever_happens),
        cmocka_unit_test(a_block_that_two_gave_back_is_found),
        cmocka_unit_test(a_block_that_a_stranger_gave_back_again_is_found_at_the_slabs_end),
        cmocka_unit_test(a_claim_is_held_by_one),
        cmocka_unit_test(a_slab_changes_hands_in_every_granule),
        cmocka_unit_test(pages_are_those_that_no_held_block_touches),
        cmocka_unit_test(returned_pages_are_not_resident_and_the_others_keep_their_contents),
        cmocka_unit_test(a_sweep_returns_what_was_free_at_the_last_one_too),
        cmocka_unit_test(taken_blocks_count_their_pages_as_used_again),
        cmocka_unit_test(a_slab_touches_again_what_of_it_is_opened),
        cmocka_unit_test(free_pages_are_counted_until_blocks_are_taken),
        cmocka_unit_test(a_slab_comes_where_one_of_its_class_ended),
        cmocka_unit_test(an_ended_slabs_metadata_go_back_and_are_whole_again),
        cmocka_unit_test(no_slab_is_cut_where_mail_is_under_way),
        cmocka_unit_test(mail_under_way_to_many_does_not_mean_no_room),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
