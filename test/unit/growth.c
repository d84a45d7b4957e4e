/* growth.c - a class that fills its slabs one after the other gets huge pages, before its heap is large; one that has blocks back does not.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "memory/huge.h"

enum { HUGE_FROM_MB = 16, SLABS = 20, BLOCKS_MAX = SLABS * 1024 };
static void *blocks[BLOCKS_MAX];
static unsigned block_count;

static int start(void **state) {
    hak_options.huge_from_mb = HUGE_FROM_MB;
    return heap_room_start(state);
}

static unsigned huge_halves(void) {
    unsigned count = 0;
    for (size_t number = 0; number < hak_load_acquire(&hak_chunk_top); number++)
        if (hak_unit_ready(number)) count += hak_word_count(hak_load_relaxed(&hak_chunk_at(number)->huge));
    return count;
}

/* The number of the first slab, from 1 on, for which a half became huge; 0: of none. */
static unsigned grow_until_huge(struct hak_heap *heap, unsigned c, void (*between)(struct hak_heap *heap, unsigned c)) {
    unsigned before = huge_halves();
    hak_store_relaxed(&hak_purge.returned_ms, 0);
    for (unsigned slab = 1; slab <= SLABS; slab++) {
        for (unsigned i = 0; i < hak_classes[c].capacity; i++) {
            REQUIRE(block_count < BLOCKS_MAX);
            blocks[block_count] = block_take(heap, c);
            REQUIRE(blocks[block_count++] != NULL);
            if (huge_halves() > before) return slab;
        }
        if (between) between(heap, c);
    }
    return 0;
}

static void end(struct hak_heap *heap) {
    while (block_count > 0) block_give(heap, blocks[--block_count]);
    heap_end(heap);
    hak_purge_spans(0);
}

static void a_class_that_fills_slab_after_slab_gets_huge_pages(void **state) {
    (void)state;
    unsigned c = (unsigned)hak_class_of(8192), at_least = 5 * HAK_HALF_GRANULES / hak_classes[c].granules; /* resident; a quarter of HUGE_FROM_MB is less */
    struct hak_heap *heap = heap_make();
    class_is_common(heap, c);
    unsigned slab = grow_until_huge(heap, c, NULL);
    assert_true((uint64_t)block_count * hak_classes[c].block_bytes < HUGE_FROM_MB << 20); /* or the heap is dense anyway */
    end(heap);
    if (slab == 0 && hak_region.page_shift != 12) skip();
    if (slab == 0 && !hak_os_huge_there()) skip();
    assert_true(slab >= at_least && slab <= at_least + 4); /* the half where it was cut last is in small pages */
}

/* What a heap does only once it has grown, it did not where its pages were huge: nothing was split by lifetime. */
static void what_it_opens_is_counted_in_huge_pages_too(void **state) {
    (void)state;
    unsigned c = (unsigned)hak_class_of(8192), before = huge_halves();
    struct hak_heap *heap = heap_make();
    class_is_common(heap, c);
    hak_store_relaxed(&hak_purge.returned_ms, 0);
    while (block_count < (unsigned)SLABS * hak_classes[c].capacity) blocks[block_count++] = block_take(heap, c);
    uint64_t opened_bytes = heap->opened_bytes, bytes = (uint64_t)block_count * hak_classes[c].block_bytes;
    bool has_huge = huge_halves() > before;
    end(heap);
    assert_true(opened_bytes >= bytes);
    if (!has_huge) skip();
}

/* Of the slab before the last one, which is full. */
static void have_some_back(struct hak_heap *heap, unsigned c) {
    unsigned capacity = hak_classes[c].capacity, some = capacity / 2;
    if (block_count < 2 * capacity) return;
    void **first = &blocks[block_count - 2 * capacity];
    for (unsigned i = 0; i < some; i++) block_give(heap, first[i]);
    for (unsigned i = 0; i < some; i++) first[i] = block_take(heap, c);
}

static void a_class_that_has_blocks_back_does_not(void **state) {
    (void)state;
    unsigned c = (unsigned)hak_class_of(4096); /* slabs of 256 KiB: all of them are below huge_from_mb */
    struct hak_heap *heap = heap_make();
    class_is_common(heap, c);
    assert_int_equal(grow_until_huge(heap, c, have_some_back), 0);
    end(heap);
}

static void who_wants_none_gets_none(void **state) {
    (void)state;
    hak_options.huge_from_mb = 0;
    struct hak_heap *heap = heap_make();
    unsigned c = (unsigned)hak_class_of(8192);
    class_is_common(heap, c);
    assert_int_equal(grow_until_huge(heap, c, NULL), 0);
    end(heap);
    hak_options.huge_from_mb = HUGE_FROM_MB;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_that_fills_slab_after_slab_gets_huge_pages),
        cmocka_unit_test(what_it_opens_is_counted_in_huge_pages_too),
        cmocka_unit_test(a_class_that_has_blocks_back_does_not),
        cmocka_unit_test(who_wants_none_gets_none),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
