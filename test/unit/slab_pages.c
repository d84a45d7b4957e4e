/* slab_pages.c - pages of slabs: opened one by one, returned and touched again, counted, known to be absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/slab_room.h"

#include <string.h>
#include <sys/mman.h>

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
        size_t from = (size_t)(hak_slab_start(slab) - hak_slab_base(slab)) + (size_t)block * class->block_bytes, to = from + class->block_bytes - 1;
        for (size_t page = from >> shift; page <= to >> shift; page++) held |= UINT64_C(1) << page;
    }
    return ~held & hak_slab_pages(class);
}

static void pages_are_those_that_no_held_block_touches(void **state) {
    (void)state;
    uint64_t dice = 31;
    const unsigned held_per_1000[] = { 0, 1, 3, 10, 30, 100, 500, 1000 };
    unsigned begin_further = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_slab *first = slab_cut(1), *slab = slab_cut(c); /* of the window's first granule the lead is 0 */
        const struct hak_class *class = &hak_classes[c];
        begin_further += hak_slab_start(slab) != hak_slab_base(slab);
        assert_int_equal(hak_word_count(hak_slab_pages(class)) << hak_slab_page_shift(class), class->granules * HAK_GRANULE_BYTES);
        for (unsigned i = 0; i < sizeof held_per_1000 / sizeof *held_per_1000; i++) {
            slab_drain(slab);
            blocks_free_at_random(slab, &dice, held_per_1000[i]);
            assert_true(hak_slab_free_pages_claimed(slab) == pages_naive(slab));
            hak_row_arm(hak_slab_row(slab), hak_row_out(hak_slab_row(slab)) - hak_slab_collect(slab), 1);
            assert_true(hak_slab_free_pages_claimed(slab) == pages_naive(slab));
        }
        slab_end(slab);
        slab_end(first);
    }
    assert_true(begin_further > 20); /* of the 35 that leave room for it */
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
        struct hak_slab *before = slab_cut(1), *slab = slab_cut(c);
        const struct hak_class *class = &hak_classes[c];
        char *first = hak_slab_base(slab), *end = hak_slab_start(slab) + (size_t)class->capacity * class->block_bytes;
        slab_drain(slab);
        unsigned shift = hak_slab_page_shift(class);
        memset(first, 0x5a, hak_round_up((size_t)(end - first), (size_t)1 << shift));
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
        slab_end(before);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_new_slab_the_clean_granules_are_absent),
        cmocka_unit_test(what_a_slab_left_alone_is_absent_for_the_next),
        cmocka_unit_test(what_a_sparse_block_left_alone_is_absent_for_the_next),
        cmocka_unit_test(what_went_back_of_a_slab_is_touched_again_in_the_next),
        cmocka_unit_test(what_was_never_handed_out_is_opened_by_the_page),
        cmocka_unit_test(pages_are_those_that_no_held_block_touches),
        cmocka_unit_test(returned_pages_are_not_resident_and_the_others_keep_their_contents),
        cmocka_unit_test(a_sweep_returns_what_was_free_at_the_last_one_too),
        cmocka_unit_test(taken_blocks_count_their_pages_as_used_again),
        cmocka_unit_test(a_slab_touches_again_what_of_it_is_opened),
        cmocka_unit_test(free_pages_are_counted_until_blocks_are_taken),
        cmocka_unit_test(an_ended_slabs_metadata_go_back_and_are_whole_again),
    };
    return cmocka_run_group_tests(tests, slab_room_start, NULL);
}
