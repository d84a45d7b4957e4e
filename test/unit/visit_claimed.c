/* visit_claimed.c - a visit finds a slab that another thread has claimed: it goes on elsewhere, and the slab is not lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

enum { BLOCKS_MAX = 1 << 12 };
static void *blocks[BLOCKS_MAX];

/* It goes to the list, where its countdown was what it had been armed for in use: more than was out, so that no event came to end it. */
static void a_slab_that_is_claimed_when_it_is_turned_to_ends_by_its_last_free(void **state) {
    (void)state;
    for (unsigned c = 4; c <= 64; c += 20) {
        struct hak_heap *heap = heap_make();
        class_is_common(heap, c);
        for (unsigned i = 0; i < 200; i++) blocks[i] = block_take(heap, c); /* opened, to be handed out by whole words */
        for (unsigned i = 0; i < 200; i++) block_give(heap, blocks[i]);
        for (unsigned i = 0; i < 2000; i++) block_give(heap, blocks[0] = block_take(heap, c));
        struct hak_slab *slab = slab_of(blocks[0]);
        size_t granule = hak_slab_granule(slab);
        while (hak_bin_at(heap, c)->word) block_give(heap, block_take(heap, c));
        unsigned count = 0;
        do blocks[count++] = block_take(heap, c);
        while (hak_bin_at(heap, c)->word);
        assert_ptr_equal(slab_of(blocks[0]), slab);
        assert_true(hak_slab_claim(slab));
        void *other = block_take(heap, c);
        hak_slab_unclaim(slab);
        assert_ptr_not_equal(slab_of(other), slab);
        assert_int_equal(slab->place, HAK_SLAB_PARTIAL);
        for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
        assert_false(hak_slab_live(granule));
        block_give(heap, other);
        heap_end(heap);
    }
    AUDIT();
}

static void a_claimed_slab_is_passed_by_and_not_lost(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = 12, capacity = hak_classes[c].capacity;
    class_is_common(heap, c);
    blocks[0] = block_take(heap, c);
    while (hak_bin_at(heap, c)->word) block_take(heap, c);
    struct hak_slab *slab = slab_of(blocks[0]);
    assert_true(hak_slab_claim(slab)); /* as a thread that returns its pages */
    uint64_t claimed = heap->counters.n[HAK_C_visit_claimed]; /* a heap's life may not be its first */
    void *block = block_take(heap, c);
    assert_ptr_not_equal(slab_of(block), slab);
    assert_int_equal(slab->place, HAK_SLAB_PARTIAL);
    assert_int_equal(heap->counters.n[HAK_C_visit_claimed], claimed + 1);
    hak_slab_unclaim(slab);
    bool seen = false;
    for (unsigned i = 0; i < 2 * capacity; i++) seen |= slab_of(block_take(heap, c)) == slab;
    assert_true(seen);
    heap_end(heap);
}

/* Its last block came back while the claim was held: no free is left that could end it. */
static void a_claimed_slab_that_is_empty_ends_later(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    unsigned c = 13, count = 0;
    class_is_common(heap, c);
    do blocks[count++] = block_take(heap, c);
    while (hak_bin_at(heap, c)->word);
    struct hak_slab *slab = slab_of(blocks[0]);
    assert_true(hak_slab_claim(slab));
    while (count > 0) block_give(heap, blocks[--count]);
    assert_int_equal(hak_row_out(hak_slab_row(slab)), 0);
    void *block = block_take(heap, c);
    assert_ptr_not_equal(slab_of(block), slab);
    hak_slab_unclaim(slab);
    hak_visit_chores(heap);
    assert_int_equal(slab->place, HAK_SLAB_NONE);
    block_give(heap, block);
    heap_end(heap);
    assert_int_equal(live_slabs(c), 0);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slab_that_is_claimed_when_it_is_turned_to_ends_by_its_last_free),
        cmocka_unit_test(a_claimed_slab_is_passed_by_and_not_lost),
        cmocka_unit_test(a_claimed_slab_that_is_empty_ends_later),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
