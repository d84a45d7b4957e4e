/* event.c - a countdown ends: slabs go to their lists, come back from being full, and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "rules/options.h"

#include <string.h>

enum { BLOCKS_MAX = 1 << 15 };
static void *blocks[BLOCKS_MAX];

/* The heap has a slab of the class that is full, and another one in use. */
static struct hak_slab *slab_fill(struct hak_heap *heap, unsigned c) {
    class_is_common(heap, c);
    unsigned capacity = hak_classes[c].capacity;
    for (unsigned i = 0; i < capacity; i++) blocks[i] = block_take(heap, c);
    struct hak_slab *slab = slab_of(blocks[0]);
    for (unsigned i = 0; i < capacity; i++) assert_ptr_equal(slab_of(blocks[i]), slab);
    blocks[capacity] = block_take(heap, c);
    assert_ptr_not_equal(slab_of(blocks[capacity]), slab);
    assert_int_equal(slab->place, HAK_SLAB_FULL);
    return slab;
}

static void full_slab_returns_after_an_eighth_is_freed(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_heap *heap = heap_make();
        struct hak_slab *slab = slab_fill(heap, c);
        unsigned capacity = hak_classes[c].capacity, share = capacity / (unsigned)hak_options.relist_share;
        for (unsigned i = 0; i + 1 < share; i++) {
            block_give(heap, blocks[i]);
            assert_int_equal(slab->place, HAK_SLAB_FULL);
        }
        block_give(heap, blocks[share - 1]);
        assert_int_equal(slab->place, HAK_SLAB_PARTIAL);
        assert_ptr_equal(hak_slab_named(heap->shelf[c].partial), slab);
        for (unsigned i = share; i <= capacity; i++) block_give(heap, blocks[i]);
        heap_end(heap);
    }
    AUDIT();
}

static void the_share_is_an_option(void **state) {
    (void)state;
    unsigned c = 10, capacity = hak_classes[c].capacity;
    hak_options.relist_share = 2;
    struct hak_heap *heap = heap_make();
    struct hak_slab *slab = slab_fill(heap, c);
    for (unsigned i = 0; i < capacity; i++) {
        assert_int_equal(slab->place, i < capacity / 2 ? HAK_SLAB_FULL : HAK_SLAB_PARTIAL);
        if (i == capacity - 1) break;
        block_give(heap, blocks[i]);
    }
    block_give(heap, blocks[capacity - 1]);
    block_give(heap, blocks[capacity]);
    hak_options.relist_share = 8;
    heap_end(heap);
}

static void last_free_of_a_listed_slab_ends_it(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c += 3) {
        struct hak_heap *heap = heap_make();
        struct hak_slab *slab = slab_fill(heap, c);
        size_t granule = hak_slab_granule(slab);
        unsigned capacity = hak_classes[c].capacity;
        uint64_t released = heap->counters.n[HAK_C_slab_released];
        for (unsigned i = capacity; i-- > 0;) {
            assert_true(hak_slab_live(granule));
            block_give(heap, blocks[i]);
        }
        assert_false(hak_slab_live(granule));
        assert_int_equal(heap->counters.n[HAK_C_slab_released], released + 1);
        assert_int_equal(heap->shelf[c].partial, 0);
        block_give(heap, blocks[capacity]);
        heap_end(heap);
    }
    AUDIT();
}

static void last_free_of_a_current_slab_is_seen(void **state) {
    (void)state;
    uint64_t dice = 43;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c += 2) {
        unsigned capacity = hak_classes[c].capacity, window = hak_load_relaxed(&hak_shares[c].few);
        for (unsigned count = window; count <= capacity; count += 1 + (unsigned)(dice_next(&dice) % (capacity / 4))) {
            struct hak_heap *heap = heap_make();
            class_is_common(heap, c);
            for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, c);
            struct hak_slab *slab = slab_of(blocks[0]);
            for (unsigned left = count; left > 0;) { /* in any order */
                unsigned k = (unsigned)(dice_next(&dice) % left);
                block_give(heap, blocks[k]);
                blocks[k] = blocks[--left];
            }
            assert_int_equal(slab->place, HAK_SLAB_CURRENT);
            assert_int_equal(hak_row_out(hak_slab_row(slab)), 0);
            assert_true(hak_bin_at(heap, c)->word == 0);
            assert_true(slab->counted_pages > 0); /* as free memory */
            heap_end(heap);
        }
    }
    AUDIT();
}

/* Of a program that gives back each block before it asks for the next; and what it holds more of than goes out at once is seen as before. */
static void who_holds_nothing_makes_few_events(void **state) {
    (void)state;
    enum { WINDOWS = 320 };
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c += 3) {
        struct hak_heap *heap = heap_make();
        class_is_common(heap, c);
        unsigned few = hak_load_relaxed(&hak_shares[c].few), count = 65;
        uint64_t events = heap->counters.n[HAK_C_free_event];
        for (unsigned i = 0; i < WINDOWS * few; i++) {
            heap->ticks_seen = hak_os_ticks(); /* who is interrupted for a millisecond visits rarely: chores.c */
            blocks[0] = block_take(heap, c);
            block_give(heap, blocks[0]);
        }
        struct hak_slab *slab = slab_of(blocks[0]);
        assert_true(slab->idle == 7 && slab->exact == 0 && slab->place == HAK_SLAB_CURRENT);
        hak_slab_flags_set(slab, HAK_SLAB_EXACT);
        assert_true(slab->idle == 7 && slab->exact == 1 && slab->place == HAK_SLAB_CURRENT && !slab->pending);
        events = heap->counters.n[HAK_C_free_event] - events;
        assert_in_range(events, WINDOWS / 16, WINDOWS / 16 + 4);
        hak_bin_trim(heap, c, 0);
        for (; count <= 3 * 64; count += 9) { /* of blocks of more than one word */
            for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, c);
            for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
            assert_int_equal(hak_row_out(hak_slab_row(slab)), 0);
            assert_true(slab->counted_pages > 0);
        }
        unsigned pairs = 0; /* of these bursts some events found blocks that were held: the next is near again */
        for (events = heap->counters.n[HAK_C_free_event]; heap->counters.n[HAK_C_free_event] == events; pairs++) block_give(heap, block_take(heap, c));
        assert_in_range(pairs, few, 2 * few);
        heap_end(heap);
    }
    AUDIT();
}

static void an_empty_current_slab_ends_when_free_memory_breaks_its_bound(void **state) {
    (void)state;
    uint64_t bound = hak_options.free_max_mb;
    struct hak_heap *heap = heap_make();
    hak_options.free_max_mb = 0;
    unsigned c = HAK_SMALL_CLASS_MAX, window = hak_load_relaxed(&hak_shares[c].few);
    class_is_common(heap, c);
    for (unsigned i = 0; i < window; i++) blocks[i] = block_take(heap, c);
    size_t granule = hak_slab_granule(slab_of(blocks[0]));
    hak_free_note(HAK_GRANULE_BYTES, 0); /* what earlier tests left may have gone back by the clock */
    for (unsigned i = 0; i < window; i++) block_give(heap, blocks[i]);
    hak_free_note(-HAK_GRANULE_BYTES, 0);
    hak_options.free_max_mb = bound;
    assert_false(hak_slab_live(granule));
    assert_null(heap->shelf[c].current);
    void *block = block_take(heap, c); /* the next visit cuts a new one */
    assert_non_null(block);
    block_give(heap, block);
    heap_end(heap);
    AUDIT();
}

/* What a class wants first may be a page: it is cut in memory that is not resident, lest whole free spans are held for pages. But a slab of which
 * nothing is held serves nobody else; where heaps are many it would be missed. */
static void a_first_slab_takes_the_place_of_one_of_which_nothing_is_held(void **state) {
    (void)state;
    uint32_t rare = hak_load_relaxed(&hak_rare_blocks);
    for (unsigned round = 0; round < 2; round++) {
        struct hak_heap *heap = heap_make();
        unsigned c = 40, first = 44, capacity = hak_classes[c].capacity;
        assert_true(hak_classes[c].granules == hak_classes[first].granules && capacity < sizeof blocks / sizeof *blocks);
        hak_purge_spans(0);
        assert_null(hak_slab_cut_again(heap, first)); /* where it ended before is forgotten */
        size_t dirty = hak_span_take(2 * hak_classes[c].granules, 1, &(size_t){ 0 });
        assert_true(dirty != HAK_NO_GRANULE);
        class_is_common(heap, c);
        class_is_common(heap, first);
        for (unsigned i = 0; i < capacity; i++) blocks[i] = block_take(heap, c);
        size_t granule = hak_slab_granule(slab_of(blocks[0]));
        for (unsigned i = 0; i < capacity; i++) block_give(heap, blocks[i]);
        assert_true(heap->may_make_room);
        hak_span_give(dirty, 2 * hak_classes[c].granules, HAK_SPAN_DIRTY);
        if (round) hak_store_relaxed(&hak_rare_blocks, 16 * HAK_RARE_ASKS);
        uint64_t handed = heap->shelf[first].handed;
        heap->shelf[first].handed = 0; /* the heap was others' */
        void *block = block_take(heap, first);
        heap->shelf[first].handed += handed;
        hak_store_relaxed(&hak_rare_blocks, rare);
        if (round) assert_true(hak_slab_granule(slab_of(block)) != granule);
        else assert_int_equal(hak_slab_granule(slab_of(block)), granule);
        block_give(heap, block);
        heap_end(heap);
    }
    AUDIT();
}

/* Else its pages stay for as long as its thread does nothing. */
static void the_word_in_use_goes_back_though_a_third_thread_is_at_the_slab(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = 48, count = hak_load_relaxed(&hak_shares[c].few) + 1;
    class_is_common(heap, c);
    for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, c);
    struct hak_slab *slab = slab_of(blocks[0]);
    assert_true(hak_bin_at(heap, c)->word != 0);
    assert_true(hak_slab_claim(slab));
    for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
    assert_true(hak_bin_at(heap, c)->word == 0);
    assert_int_equal(hak_row_out(hak_slab_row(slab)), 0);
    assert_int_equal(hak_slab_free_pages_claimed(slab), ~UINT64_C(0)); /* whoever looks next has them */
    hak_slab_unclaim(slab);
    void *block = block_take(heap, c);
    assert_non_null(block);
    block_give(heap, block);
    heap_end(heap);
    AUDIT();
}

static void an_end_that_meets_a_claim_is_put_off(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = 24, capacity = hak_classes[c].capacity;
    struct hak_slab *slab = slab_fill(heap, c);
    size_t granule = hak_slab_granule(slab);
    assert_true(hak_slab_claim(slab)); /* as a thread that sweeps its pages */
    for (unsigned i = 0; i < capacity; i++) block_give(heap, blocks[i]);
    assert_true(hak_slab_live(granule));
    assert_int_equal(slab->pending, 1);
    assert_ptr_equal(hak_slab_named(heap->pending), slab);
    hak_event_pending(heap);
    assert_true(hak_slab_live(granule)); /* still claimed */
    hak_slab_unclaim(slab);
    hak_event_pending(heap);
    assert_false(hak_slab_live(granule));
    assert_int_equal(heap->pending, 0);
    block_give(heap, blocks[capacity]);
    heap_end(heap);
    AUDIT();
}

static void a_bins_word_goes_back_to_its_slab(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = 3, capacity = hak_classes[c].capacity;
    class_is_common(heap, c);
    uint64_t handed = heap->shelf[c].handed;
    blocks[0] = block_take(heap, c);
    struct hak_slab *slab = slab_of(blocks[0]);
    assert_true(hak_bin_at(heap, c)->word != 0 && heap->shelf[c].handed > handed + 1);
    hak_bin_put_back(heap, c);
    assert_true(hak_bin_at(heap, c)->word == 0 && !heap->shelf[c].current);
    assert_int_equal(heap->shelf[c].handed, handed + 1);
    assert_int_equal(slab->place, HAK_SLAB_PARTIAL);
    assert_int_equal(hak_row_out(hak_slab_row(slab)), 1);
    hak_slab_check(slab);
    hak_bin_put_back(heap, c); /* nothing is there: nothing happens */
    block_give(heap, blocks[0]);
    assert_int_equal(live_slabs(c), 0);
    for (unsigned i = 0; i < capacity; i++) blocks[i] = block_take(heap, c);
    slab = slab_of(blocks[0]);
    hak_bin_put_back(heap, c);
    assert_int_equal(slab->place, HAK_SLAB_FULL);
    for (unsigned i = 0; i < capacity; i++) block_give(heap, blocks[i]);
    assert_int_equal(live_slabs(c), 0);
    heap_end(heap);
    AUDIT();
}

static void lists_keep_every_slab_that_was_pushed(void **state) {
    (void)state;
    enum { COUNT = 20 };
    struct hak_heap *heap = heap_make();
    struct hak_slab *slabs[COUNT];
    bool listed[COUNT] = { false };
    uint64_t dice = 47;
    unsigned c = 7;
    for (unsigned i = 0; i < COUNT; i++) slabs[i] = hak_slab_cut(heap, c, HAK_GROWTH_SOME);
    for (unsigned step = 0; step < 2000; step++) {
        unsigned k = (unsigned)(dice_next(&dice) % COUNT), found = 0, expected = 0;
        if (listed[k]) hak_list_remove(heap, slabs[k]);
        else hak_list_push(heap, slabs[k]);
        listed[k] = !listed[k];
        struct hak_slab *before = NULL;
        for (struct hak_slab *slab = hak_slab_named(heap->shelf[c].partial); slab; slab = hak_slab_named(slab->next)) {
            REQUIRE(hak_slab_named(slab->prev) == before && found++ <= COUNT);
            before = slab;
        }
        for (unsigned i = 0; i < COUNT; i++) expected += listed[i];
        REQUIRE(found == expected);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (listed[i]) hak_list_remove(heap, slabs[i]);
        hak_row_arm(hak_slab_row(slabs[i]), 0, 0);
        assert_true(hak_slab_claim(slabs[i]));
        hak_slab_release_claimed(slabs[i], NULL);
    }
    heap_end(heap);
    AUDIT();
}

/* Of a slab whose blocks die at random an eighth is left when hardly a page is free yet: it is looked at again before it is empty. */
static void a_slab_is_looked_at_again_below_an_eighth(void **state) {
    (void)state;
    enum { PAGE = 4096, BLOCK = 512, EACH = PAGE / BLOCK };
    unsigned c = 1;
    while (hak_classes[c].block_bytes != BLOCK) c++;
    unsigned capacity = hak_classes[c].capacity, pages = capacity / EACH;
    hak_options.free_max_mb = 0;
    hak_options.free_share = 1000000; /* each free page breaks the bound */
    struct hak_heap *heap = heap_make();
    struct hak_slab *slab = slab_fill(heap, c);
    for (unsigned row = 0; row < EACH - 1; row++) /* each page keeps one block */
        for (unsigned page = 0; page < pages; page++) block_give(heap, blocks[page * EACH + row]);
    assert_int_equal(slab->returned, 0);
    unsigned given = 0; /* pages */
    for (; given < pages - pages / 4; given++) block_give(heap, blocks[given * EACH + EACH - 1]);
    assert_true(hak_word_count(slab->returned) >= given / 2);
    for (; given < pages; given++) block_give(heap, blocks[given * EACH + EACH - 1]);
    block_give(heap, blocks[capacity]);
    hak_options.free_max_mb = 6;
    hak_options.free_share = 8;
    heap_end(heap);
    AUDIT();
}

/* Classes by turns: each had a slab of its own, of which nothing was held, and new ones were of memory from the kernel. */
static void a_slab_in_use_that_holds_nothing_makes_room(void **state) {
    (void)state;
    enum { FIRST = 30, SECOND = 40 };
    assert_int_equal(hak_classes[FIRST].granules, hak_classes[SECOND].granules);
    struct hak_heap *heap = heap_make();
    hak_purge_spans(0);
    class_is_common(heap, FIRST);
    class_is_common(heap, SECOND);
    unsigned count = hak_classes[FIRST].capacity / 2;
    for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, FIRST);
    struct hak_slab *slab = slab_of(blocks[0]);
    for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
    assert_int_equal(slab->place, HAK_SLAB_CURRENT);
    void *block = block_take(heap, SECOND);
    assert_ptr_equal(slab_of(block), slab);
    assert_null(heap->shelf[FIRST].current);
    block_give(heap, block);
    heap_end(heap);
    AUDIT();
}

/* And not below it, where nothing is resident: it ended for nothing then. */
static void the_room_that_is_made_is_used(void **state) {
    (void)state;
    enum { FIRST = 30, SECOND = 40, HOLE = 16 };
    struct hak_heap *heap = heap_make();
    class_is_common(heap, FIRST);
    class_is_common(heap, SECOND);
    hak_purge_spans(0);
    size_t dirty, hole = hak_span_take(HOLE, 1, &dirty);
    unsigned count = hak_classes[FIRST].capacity / 2;
    for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, FIRST);
    struct hak_slab *slab = slab_of(blocks[0]);
    for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
    assert_true(hole < hak_slab_granule(slab));
    hak_span_give(hole, HOLE, HAK_SPAN_CLEAN);
    void *block = block_take(heap, SECOND);
    assert_ptr_equal(slab_of(block), slab);
    block_give(heap, block);
    heap_end(heap);
    AUDIT();
}

/* But not at each turn: twenty sizes by turns, 100 blocks of each, cut a slab for every 100 blocks, a third of the time. */
static void classes_that_take_turns_have_slabs_of_their_own(void **state) {
    (void)state;
    static const unsigned classes[] = { 26, 30, 36, 40, 46, 50 };
    enum { CLASSES = sizeof classes / sizeof *classes, ROUNDS = 50, COUNT = 100 };
    struct hak_heap *heap = heap_make();
    hak_purge_spans(0);
    for (unsigned i = 0; i < CLASSES; i++) class_is_common(heap, classes[i]);
    for (unsigned part = 0; part < 2; part++) {
        uint64_t released = heap->counters.n[HAK_C_slab_released];
        for (unsigned turn = 0; turn < ROUNDS * CLASSES; turn++) {
            for (unsigned i = 0; i < COUNT; i++) blocks[i] = block_take(heap, classes[turn % CLASSES]);
            for (unsigned i = 0; i < COUNT; i++) block_give(heap, blocks[i]);
        }
        released = heap->counters.n[HAK_C_slab_released] - released;
        assert_true(released <= CLASSES); /* one of each class */
        if (part == 0) assert_true(released > 0);
        memset(heap->made_room, 0, sizeof heap->made_room); /* as time does */
    }
    heap_end(heap);
    AUDIT();
}

/* Where each holds much in its turn, one slab serves all: else they keep each other's pages up to the bound. */
static void classes_that_hold_much_in_their_turn_make_room_each_time(void **state) {
    (void)state;
    static const unsigned classes[] = { 56, 60, 64 };
    enum { CLASSES = sizeof classes / sizeof *classes, TURNS = 30, COUNT = 200 };
    struct hak_heap *heap = heap_make();
    hak_purge_spans(0);
    for (unsigned i = 0; i < CLASSES; i++) class_is_common(heap, classes[i]);
    uint64_t released = heap->counters.n[HAK_C_slab_released];
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned i = 0; i < COUNT; i++) blocks[i] = block_take(heap, classes[turn % CLASSES]);
        for (unsigned i = 0; i < COUNT; i++) block_give(heap, blocks[i]);
    }
    assert_true(heap->counters.n[HAK_C_slab_released] - released >= TURNS / 2);
    heap_end(heap);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_slab_returns_after_an_eighth_is_freed),
        cmocka_unit_test(the_share_is_an_option),
        cmocka_unit_test(last_free_of_a_listed_slab_ends_it),
        cmocka_unit_test(last_free_of_a_current_slab_is_seen),
        cmocka_unit_test(who_holds_nothing_makes_few_events),
        cmocka_unit_test(an_empty_current_slab_ends_when_free_memory_breaks_its_bound),
        cmocka_unit_test(the_word_in_use_goes_back_though_a_third_thread_is_at_the_slab),
        cmocka_unit_test(a_slab_is_looked_at_again_below_an_eighth),
        cmocka_unit_test(a_slab_in_use_that_holds_nothing_makes_room),
        cmocka_unit_test(the_room_that_is_made_is_used),
        cmocka_unit_test(a_first_slab_takes_the_place_of_one_of_which_nothing_is_held),
        cmocka_unit_test(classes_that_take_turns_have_slabs_of_their_own),
        cmocka_unit_test(classes_that_hold_much_in_their_turn_make_room_each_time),
        cmocka_unit_test(an_end_that_meets_a_claim_is_put_off),
        cmocka_unit_test(a_bins_word_goes_back_to_its_slab),
        cmocka_unit_test(lists_keep_every_slab_that_was_pushed),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
