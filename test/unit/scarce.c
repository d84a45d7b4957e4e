/* scarce.c - a class of which just as much is held as is open: one malloc in so many is a visit, not each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/scarce.h"

enum { BLOCKS_MAX = 1 << 13, TURNS = 40000 };
static void *blocks[BLOCKS_MAX];

static uint64_t visits(const struct hak_heap *heap) {
    static const enum hak_counter kinds[] = { HAK_C_visit_next_word, HAK_C_visit_partial, HAK_C_visit_new_slab, HAK_C_visit_collect };
    uint64_t sum = 0;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) sum += heap->counters.n[kinds[i]];
    return sum;
}

/* Of `count` blocks that are held one is given back, the oldest or any, and one is taken; the visits that took. */
static uint64_t replace(struct hak_heap *heap, unsigned c, unsigned count, bool is_random, unsigned turns) {
    uint64_t before = visits(heap), random = 88172645463325252u;
    for (unsigned i = 0; i < turns; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        unsigned k = is_random ? (unsigned)((random & UINT32_MAX) * count >> 32) : i % count;
        block_give(heap, blocks[k]);
        assert_non_null(blocks[k] = block_take(heap, c));
    }
    return visits(heap) - before;
}

static void held(struct hak_heap *heap, unsigned c, unsigned count, bool is_random) {
    for (unsigned i = 0; i < count; i++) assert_non_null(blocks[i] = block_take(heap, c));
    replace(heap, c, count, is_random, HAK_SCARCE_FROM + 2 * count + 4000); /* what it has to find out */
    unsigned least = count > 64 ? 4 : 2; /* of one word's blocks those of a second one are only so many more */
    assert_true(replace(heap, c, count, is_random, TURNS) < TURNS / least);
    assert_true(live_slabs(c) <= count / hak_classes[c].capacity + 2);
    for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
}

static void what_is_held_may_be_all_that_is_open(void **state) {
    (void)state;
    static const unsigned classes[] = { 1, 2, 4, 9, 16 };
    room_time_stands = true;
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++) {
        unsigned c = classes[i], capacity = hak_classes[c].capacity;
        const unsigned counts[] = { 64, capacity - capacity / 40, capacity };
        for (unsigned k = 0; k < 2 * sizeof counts / sizeof *counts; k++) {
            struct hak_heap *heap = heap_make();
            class_is_common(heap, c);
            held(heap, c, counts[k / 2], k % 2);
            heap_end(heap);
        }
    }
    AUDIT();
}

/* A heap that grows finds few blocks, too, where each page has few, and fills its slabs all the same. */
static void who_grows_fills_slabs(void **state) {
    (void)state;
    room_time_stands = true;
    for (unsigned c = 40; c <= HAK_SMALL_CLASS_MAX; c += 8) {
        struct hak_heap *heap = heap_make();
        class_is_common(heap, c);
        unsigned count = BLOCKS_MAX;
        for (unsigned i = 0; i < count; i++) assert_non_null(blocks[i] = block_take(heap, c));
        assert_int_equal(live_slabs(c), (count - 1) / hak_classes[c].capacity + 1);
        for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
        heap_end(heap);
    }
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_may_be_all_that_is_open),
        cmocka_unit_test(who_grows_fills_slabs),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
