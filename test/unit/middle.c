/* middle.c - blocks above 1 KiB that their owner frees are kept, the last first, and given back in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/middle.h"
#include "rules/options.h"

static void middle_give(struct hak_heap *heap, void *block) {
    hak_middle_free(block, hak_granule_at(hak_granule_of(block)), heap, "free", slab_of(block)->class_index);
}

static void *middle_take(struct hak_heap *heap, unsigned class_index) {
    bool is_sample;
    unsigned count = hak_middle_count(hak_middle_of(heap, class_index));
    return count ? hak_middle_take(heap, hak_middle_of(heap, class_index), count, &is_sample) : NULL;
}

static void the_block_freed_last_is_handed_out_first(void **state) {
    (void)state;
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_heap *heap = heap_make();
        void *held[HAK_MIDDLE_BLOCKS];
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) held[i] = block_take(heap, c);
        assert_null(middle_take(heap, c));
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) middle_give(heap, held[i]);
        assert_int_equal(live_blocks(c), 0);
        for (unsigned i = HAK_MIDDLE_BLOCKS; i-- > 0;) assert_ptr_equal(middle_take(heap, c), held[i]);
        assert_null(middle_take(heap, c));
        assert_int_equal(live_blocks(c), HAK_MIDDLE_BLOCKS);
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) block_give(heap, held[i]);
        heap_end(heap);
        AUDIT();
    }
}

static void more_than_it_keeps_goes_to_the_slab(void **state) {
    (void)state;
    unsigned c = HAK_SMALL_CLASS_MAX + 20;
    struct hak_heap *heap = heap_make();
    enum { COUNT = HAK_MIDDLE_BLOCKS + HAK_MIDDLE_RUN }; /* one more, and all would go */
    void *held[COUNT], *one = block_take(heap, c);
    for (unsigned i = 0; i < COUNT; i++) held[i] = block_take(heap, c);
    middle_give(heap, held[0]);
    held[0] = middle_take(heap, c); /* the run of frees before is over */
    for (unsigned i = 0; i < COUNT; i++) {
        middle_give(heap, held[i]);
        struct hak_row *row = hak_slab_row(slab_of(held[i]));
        unsigned index = block_index(held[i]);
        bool is_free = hak_load_relaxed(&row->word[index / 64]) >> index % 64 & 1;
        assert_int_equal(is_free, i >= HAK_MIDDLE_BLOCKS);
        assert_int_equal(hak_middle_has(heap, c, held[i]), !is_free);
        hak_slab_check(slab_of(held[i]));
    }
    middle_give(heap, one);
    assert_int_equal(hak_middle_count(hak_middle_of(heap, c)), 0);
    assert_int_equal(live_blocks(c), 0);
    heap_end(heap);
    assert_int_equal(live_slabs(c), 0);
    AUDIT();
}

static void what_is_kept_counts_as_free_memory(void **state) {
    (void)state;
    unsigned c = HAK_CLASS_COUNT - 1;
    struct hak_heap *heap = heap_make();
    void *one = block_take(heap, c), *two = block_take(heap, c);
    int64_t before = free_now();
    middle_give(heap, one);
    assert_int_equal(free_now() - before, hak_classes[c].block_bytes);
    AUDIT();
    assert_ptr_equal(middle_take(heap, c), one);
    assert_int_equal(free_now(), before);
    block_give(heap, one);
    block_give(heap, two);
    heap_end(heap);
    AUDIT();
}

/* At once, whatever grace free memory has: the heap's thread may wait for ever, and nobody else can use what it keeps. */
static void all_is_given_back_when_free_memory_breaks_its_bound(void **state) {
    (void)state;
    unsigned c = HAK_CLASS_COUNT - 1;
    hak_options.free_grace_ms = 60000;
    struct hak_heap *heap = heap_make();
    void *held[64];
    for (unsigned i = 0; i < 64; i++) *(char *)(held[i] = block_take(heap, c)) = 1;
    hak_options.free_max_mb = 0;
    hak_options.free_share = 1024;
    for (unsigned i = 0; i < 64; i++) middle_give(heap, held[i]);
    void *last = block_take(heap, c);
    heap->clock_in = 1; /* the next free looks */
    middle_give(heap, last);
    assert_int_equal(hak_middle_count(hak_middle_of(heap, c)), 0);
    hak_options.free_max_mb = 6;
    hak_options.free_share = 8;
    hak_options.free_grace_ms = 0;
    heap_end(heap);
    AUDIT();
}

static size_t kept_bytes(struct hak_heap *heap) {
    size_t bytes = 0;
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) bytes += hak_middle_count(hak_middle_of(heap, c)) * (size_t)hak_classes[c].block_bytes;
    return bytes;
}

/* While free memory is above its bound and may be for a moment a heap keeps its part, the smaller sizes; then nothing. */
static void in_the_grace_a_heap_keeps_its_part(void **state) {
    (void)state;
    enum { CLASSES = 4, MUCH = 8 << 20 };
    struct hak_heap *heap = heap_make();
    void *held[CLASSES][HAK_MIDDLE_BLOCKS];
    for (unsigned k = 0; k < CLASSES; k++)
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) *(char *)(held[k][i] = block_take(heap, HAK_CLASS_COUNT - 1 - k)) = 1;
    hak_options.free_max_mb = 1;
    hak_options.free_share = 1024;
    hak_options.free_grace_ms = 600000;
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_store_relaxed(&hak_purge.over_since_ms, 0);
    hak_store_relaxed(&hak_purge.grace_from_ms, 0);
    hak_free_note(MUCH, 0);
    for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++)
        for (unsigned k = 0; k < CLASSES; k++) middle_give(heap, held[k][i]);
    hak_middle_chores(heap);
    assert_in_range(kept_bytes(heap), 0, hak_heap_keep_most());
    /* what was freed after the last look is not the largest's share of all */
    assert_true(hak_middle_count(hak_middle_of(heap, HAK_CLASS_COUNT - 1)) < hak_middle_count(hak_middle_of(heap, HAK_CLASS_COUNT - CLASSES)));
    middle_give(heap, block_take(heap, HAK_SMALL_CLASS_MAX + 1));
    hak_middle_chores(heap);
    assert_true(kept_bytes(heap) > 0);
    hak_store_relaxed(&hak_purge.over_since_ms, hak_os_clock_ms() - 600000);
    hak_middle_chores(heap);
    assert_int_equal(kept_bytes(heap), 0);
    hak_free_note(-MUCH, 0);
    hak_options.free_max_mb = 6;
    hak_options.free_share = 8;
    hak_options.free_grace_ms = 0;
    heap_end(heap);
    AUDIT();
}

static bool is_free_in_row(void *block) {
    unsigned index = block_index(block);
    return hak_load_relaxed(&hak_slab_row(slab_of(block))->word[index / 64]) >> index % 64 & 1;
}

/* As a run of frees that found all places taken: what is kept would keep its slabs from ending. Slabs for little address space have
 * so few blocks that the places are never all taken. */
static void a_run_of_frees_whose_numbers_are_taken_ends_too(void **state) {
    (void)state;
    enum { NUMBERS = 8, COUNT = NUMBERS + HAK_MIDDLE_RUN, C = HAK_SMALL_CLASS_MAX + 16 };
    struct hak_heap *heap = heap_make();
    static void *all[64 * NUMBERS];
    void *held[COUNT + 2];
    unsigned count = 0, all_count = 0;
    while (count < COUNT + 2) {
        void *block = block_take(heap, C);
        if (block_index(block) % 64 % NUMBERS == 0) held[count++] = block;
        else all[all_count++] = block;
        assert_in_range(all_count, 0, 64 * NUMBERS - 1);
    }
    struct hak_middle *middle = hak_middle_of(heap, C);
    hak_options.free_max_mb = 4096;
    for (unsigned again = 0; again < 2; again++) {
        heap->clock_in = INT32_MAX; /* no chores: they would give back what is kept */
        middle->state = 0; /* as malloc does, which finds none */
        for (unsigned i = 0; i < COUNT; i++) middle_give(heap, held[i]);
        assert_int_equal(hak_middle_count(middle), NUMBERS);
        if (again) break;
        for (unsigned i = 0; i < NUMBERS; i++) assert_non_null(middle_take(heap, C)); /* the run is over */
        for (unsigned i = NUMBERS; i < COUNT; i++) held[i] = NULL;
        for (unsigned i = NUMBERS; i < COUNT;) {
            void *block = block_take(heap, C);
            if (block_index(block) % 64 % NUMBERS == 0) held[i++] = block;
            else all[all_count++] = block;
            assert_in_range(all_count, 0, 64 * NUMBERS - 1);
        }
    }
    middle_give(heap, held[COUNT]); /* one more */
    assert_int_equal(hak_middle_count(middle), 0);
    for (unsigned i = 0; i <= COUNT; i++) assert_true(is_free_in_row(held[i]));
    middle_give(heap, held[COUNT + 1]);
    assert_int_equal(hak_middle_count(middle), 0); /* until malloc asks */
    hak_options.free_max_mb = 6;
    while (all_count > 0) block_give(heap, all[--all_count]);
    heap_end(heap);
    assert_int_equal(live_slabs(C), 0);
    AUDIT();
}

/* Else as much again might be kept before anybody looks. */
static void what_was_taken_lets_no_more_be_kept_unseen(void **state) {
    (void)state;
    enum { CLASSES = 4 };
    struct hak_heap *heap = heap_make();
    void *held[CLASSES][HAK_MIDDLE_BLOCKS];
    hak_options.free_max_mb = 4096;
    for (unsigned k = 0; k < CLASSES; k++)
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) held[k][i] = block_take(heap, HAK_CLASS_COUNT - 1 - k);
    for (unsigned k = 0; k < CLASSES; k++)
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++) middle_give(heap, held[k][i]);
    size_t kept = kept_bytes(heap);
    assert_true(kept > 2 * HAK_MIDDLE_MOST);
    int64_t before = free_now();
    for (unsigned k = 0; k < CLASSES; k++)
        while (middle_take(heap, HAK_CLASS_COUNT - 1 - k)) continue;
    assert_true(heap->middle_in > HAK_MIDDLE_MOST);
    hak_middle_settle(heap);
    assert_int_equal(heap->middle_in, HAK_MIDDLE_MOST);
    assert_int_equal(before - free_now(), kept);
    hak_options.free_max_mb = 6;
    for (unsigned k = 0; k < CLASSES; k++)
        for (unsigned i = 0; i < HAK_MIDDLE_BLOCKS; i++)
            if (!is_free_in_row(held[k][i])) block_give(heap, held[k][i]);
    heap_end(heap);
    AUDIT();
}

/* A sampled block makes way for another; meanwhile a handler freed one that has its number. */
static void a_block_that_comes_back_to_a_number_taken_goes_to_its_row(void **state) {
    (void)state;
    enum { C = HAK_SMALL_CLASS_MAX + 1 };
    struct hak_heap *heap = heap_make();
    static void *held[65];
    for (unsigned i = 0; i < 65; i++) held[i] = block_take(heap, C);
    unsigned first = 64, second = 64;
    for (unsigned i = 0; i < 64 && first == 64; i++)
        for (unsigned k = i + 1; k < 65; k++)
            if (block_index(held[i]) % 64 == block_index(held[k]) % 64) first = i, second = k;
    assert_true(first < second);
    middle_give(heap, held[first]);
    assert_ptr_equal(middle_take(heap, C), held[first]);
    middle_give(heap, held[second]);
    hak_middle_take_back(heap, C, held[first]);
    assert_int_equal(hak_middle_count(hak_middle_of(heap, C)), 1);
    assert_true(hak_middle_has(heap, C, held[second]) && !hak_middle_has(heap, C, held[first]) && is_free_in_row(held[first]));
    assert_ptr_equal(middle_take(heap, C), held[second]);
    for (unsigned i = 0; i < 65; i++)
        if (i != first) block_give(heap, held[i]);
    heap_end(heap);
    AUDIT();
}

static bool is_told(struct hak_heap *heap, void *block) {
    room_misused = NULL;
    if (setjmp(room_caught) == 0) middle_give(heap, block);
    return room_misused == block;
}

/* What 200 threads that wait keep is free memory that those who run cannot use, and counts for the bound. */
static void where_threads_are_many_each_keeps_little(void **state) {
    (void)state;
    enum { EACH = 8, CLASSES = 8, LAST = HAK_SMALL_CLASS_MAX + 25, LARGEST = (8 << 10) + HAK_CLASS_PAD, LITTLE = 32 << 10 };
    static void *held[CLASSES][EACH];
    assert_int_equal(hak_classes[LAST].block_bytes, LARGEST);
    for (unsigned heaps = 0; heaps <= 200; heaps += 200) {
        struct hak_heap *heap = heap_make();
        size_t most = 0, all = 0;
        for (unsigned i = 0; i < CLASSES; i++) {
            class_is_common(heap, LAST - i);
            hak_middle_of(heap, LAST - i)->state = 0; /* no run of frees from the heap's last thread */
            for (unsigned k = 0; k < EACH; k++) held[i][k] = block_take(heap, LAST - i);
        }
        hak_store_relaxed(&hak_rare_blocks, heaps ? heaps * HAK_RARE_ASKS : HAK_RARE_BLOCKS);
        for (unsigned i = 0; i < CLASSES; i++)
            for (unsigned k = 0; k < EACH; k++) {
                middle_give(heap, held[i][k]);
                all += hak_classes[LAST - i].block_bytes;
                if (kept_bytes(heap) > most) most = kept_bytes(heap);
            }
        if (heaps) assert_in_range(most, LARGEST, LITTLE + LARGEST);
        else assert_int_equal(most, all);
        hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
        heap_end(heap);
        AUDIT();
    }
}

/* In whichever place it is kept; and one that has the number of a kept one, in another slab or further on in its own, is freed all the same. */
static void a_second_free_of_a_kept_block_is_found(void **state) {
    (void)state;
    hak_options.free_max_mb = 4096;
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_heap *heap = heap_make();
        struct hak_middle *middle = hak_middle_of(heap, c);
        enum { COUNT = 2048, KEPT = HAK_MIDDLE_BLOCKS };
        static void *held[COUNT], *kept[KEPT];
        for (unsigned i = 0; i < COUNT; i++) held[i] = block_take(heap, c);
        unsigned equal = 0, kept_count = 0;
        middle->state = 0; /* as malloc does, which finds none */
        for (unsigned i = 0; i < COUNT; i++) {
            heap->clock_in = INT32_MAX; /* no chores but for the bound: they would give back what is kept */
            heap->middle_again[c - HAK_SMALL_CLASS_MAX - 1].count = 0; /* and so would a run of these */
            bool is_equal = middle->numbers >> block_index(held[i]) % 64 & 1;
            middle_give(heap, held[i]);
            equal += is_equal;
            assert_int_equal(is_free_in_row(held[i]), is_equal);
            assert_int_equal(hak_middle_has(heap, c, held[i]), !is_equal);
            if (i % 8 == 0) assert_true(is_told(heap, held[i]));
            if (is_equal) {
                held[i] = NULL;
            } else if (kept_count < KEPT - 1) {
                kept[kept_count++] = held[i];
                held[i] = NULL;
            } else {
                assert_int_equal(hak_middle_count(middle), KEPT);
                if (i % 64 == 0)
                    for (unsigned k = 0; k < KEPT; k++) assert_true(is_told(heap, hak_middle_block(middle, k)));
                assert_ptr_equal(middle_take(heap, c), held[i]);
            }
        }
        assert_int_equal(kept_count, KEPT - 1);
        assert_in_range(equal, COUNT / 64, COUNT / 2); /* twelve of 64 */
        assert_int_equal(__builtin_popcountll(middle->numbers), KEPT - 1);
        while (kept_count > 0) assert_ptr_equal(middle_take(heap, c), kept[--kept_count]);
        assert_int_equal(middle->numbers, 0);
        for (unsigned k = 0; k < KEPT - 1; k++) block_give(heap, kept[k]);
        for (unsigned i = 0; i < COUNT; i++)
            if (held[i]) block_give(heap, held[i]);
        heap_end(heap);
        AUDIT();
    }
    hak_options.free_max_mb = 6;
}

static void an_end_gives_all_back(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) middle_give(heap, block_take(heap, c));
    heap_end(heap);
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_slabs(c), 0);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_block_freed_last_is_handed_out_first),
        cmocka_unit_test(more_than_it_keeps_goes_to_the_slab),
        cmocka_unit_test(what_is_kept_counts_as_free_memory),
        cmocka_unit_test(all_is_given_back_when_free_memory_breaks_its_bound),
        cmocka_unit_test(in_the_grace_a_heap_keeps_its_part),
        cmocka_unit_test(where_threads_are_many_each_keeps_little),
        cmocka_unit_test(a_second_free_of_a_kept_block_is_found),
        cmocka_unit_test(a_run_of_frees_whose_numbers_are_taken_ends_too),
        cmocka_unit_test(what_was_taken_lets_no_more_be_kept_unseen),
        cmocka_unit_test(a_block_that_comes_back_to_a_number_taken_goes_to_its_row),
        cmocka_unit_test(an_end_gives_all_back),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
