/* given.c - what strangers freed of heaps that wait: each block is looked at once, and the looking ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "rules/options.h"

enum { BLOCKS = 20000, SLABS = 24 };
static void *blocks[BLOCKS];

static void bound_set(bool is_strict) {
    hak_options.free_max_mb = is_strict ? 0 : 6;
    hak_options.free_share = is_strict ? 1024 : 8;
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
}

static int given_start(void **state) {
    (void)state;
    hak_store_relaxed(&hak_purge.given_bytes, 0);
    hak_store_relaxed(&hak_purge.settled_bytes, 0);
    bound_set(false);
    return 0;
}

static void all_flush(struct hak_heap *stranger) {
    hak_batch_flush(stranger);
    hak_given_flush(&stranger->given_sum);
}

static unsigned looks_until_settled(void) {
    enum { MOST = 1000 };
    unsigned looks = 0;
    for (; looks < MOST && hak_given_over(); looks++) hak_sweep_given();
    return looks;
}

static void blocks_take(struct hak_heap *owner, unsigned c, unsigned count) {
    class_is_common(owner, c);
    for (unsigned i = 0; i < count; i++) *(volatile char *)(blocks[i] = block_take(owner, c)) = 1;
}

/* All goes back, and is taken in at the end. */
static void heaps_end(struct hak_heap *owner, struct hak_heap *stranger) {
    bound_set(false);
    hak_mail_take(owner);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static uint64_t free_and_resident(unsigned count, unsigned capacity) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i += capacity) {
        struct hak_slab *slab = slab_of(blocks[i]);
        bytes += (uint64_t)hak_word_count(hak_slab_free_pages_claimed(slab) & ~slab->returned) << slab->page_shift;
    }
    return bytes;
}

/* A few blocks of each slab at a time. By rounding, what was looked at was settled at each look, and the others' never looked at. */
static void few_blocks_of_a_slab_are_settled_once(void **state) {
    (void)state;
    static const unsigned sizes[] = { 512, 2048, 16384, 32768 };
    for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct hak_heap *owner = heap_make(), *stranger = heap_make();
        unsigned c = hak_class_of(sizes[k]), capacity = hak_classes[c].capacity, count = SLABS * capacity;
        blocks_take(owner, c, count);
        bound_set(true);
        for (unsigned part = 0; part < 8; part++) {
            for (unsigned i = 0; i < count; i++)
                if (i % capacity * 16 / capacity == part) block_give(stranger, blocks[i]);
            all_flush(stranger);
            looks_until_settled();
        }
        assert_in_range(free_and_resident(count, capacity), 0, (uint64_t)count * sizes[k] / 48); /* a slab's at most, of half of 24 */
        for (unsigned i = 0; i < count; i++)
            if (i % capacity * 16 / capacity >= 8) block_give(stranger, blocks[i]);
        all_flush(stranger);
        heaps_end(owner, stranger);
    }
}

/* Taken in, used again, given again: it was looked at 336 times. */
static void what_is_given_again_is_settled_again(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = HAK_SMALL_CLASS_MAX / 2, count = SLABS * hak_classes[c].capacity;
    for (unsigned round = 0; round < 3; round++) {
        bound_set(false);
        blocks_take(owner, c, count);
        bound_set(true);
        for (unsigned i = 0; i < count; i++) block_give(stranger, blocks[i]);
        all_flush(stranger);
        assert_in_range(looks_until_settled(), 1, 4);
        hak_mail_take(owner);
        hak_given_flush(&owner->given_sum);
    }
    heaps_end(owner, stranger);
}

/* 9 KiB counted as 16 when it was given and as 9 when it was settled: all was looked at at each free. */
static void blocks_of_every_size_are_settled_as_they_are_given(void **state) {
    (void)state;
    for (unsigned c = HAK_SMALL_CLASS_MAX / 2; c < HAK_CLASS_COUNT; c++) {
        struct hak_heap *owner = heap_make(), *stranger = heap_make();
        unsigned count = 16 * hak_classes[c].capacity;
        given_start(NULL);
        blocks_take(owner, c, count);
        bound_set(true);
        for (unsigned i = 0; i < count; i++) block_give(stranger, blocks[i]);
        all_flush(stranger);
        assert_in_range(looks_until_settled(), 1, 4);
        heaps_end(owner, stranger);
    }
}

/* What is summed when nobody has judged yet seemed to be as old as the machine, and to cost nothing: each burst that one thread allocates
 * and another frees went back, and was touched again, seven times. */
static void what_went_back_and_is_touched_again_is_kept(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = HAK_SMALL_CLASS_MAX / 2, count = SLABS * hak_classes[c].capacity;
    blocks_take(owner, c, count);
    bound_set(true);
    hak_store_relaxed(&hak_purge.keep_ms, 0); /* now: what is taken above may be touched again, and must not be summed */
    hak_store_relaxed(&hak_purge.judged_since_ms, 0);
    uint64_t returned = hak_load_relaxed(&hak_purge.returned_bytes), retouched = hak_load_relaxed(&hak_purge.retouched_bytes);
    for (unsigned i = 0; i < count; i++) block_give(stranger, blocks[i]);
    all_flush(stranger);
    looks_until_settled();
    assert_true(hak_load_relaxed(&hak_purge.keep_ms) != 0);
    returned = hak_load_relaxed(&hak_purge.returned_bytes) - returned;
    assert_true(returned > (uint64_t)count * hak_classes[c].block_bytes / 2);
    hak_mail_take(owner);
    for (unsigned i = 0; i < count; i++) {
        hak_store_relaxed(&hak_purge.judged_since_ms, hak_os_clock_ms()); /* it costs much, however slow this is run */
        *(volatile char *)(blocks[i] = block_take(owner, c)) = 1;
    }
    retouched = hak_load_relaxed(&hak_purge.retouched_bytes) - retouched;
    assert_true(retouched > returned / 2);
    assert_true(hak_load_relaxed(&hak_purge.keep_bytes) > returned / 4);
    for (unsigned i = 0; i < count; i++) block_give(stranger, blocks[i]);
    all_flush(stranger);
    heaps_end(owner, stranger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(few_blocks_of_a_slab_are_settled_once, given_start),
        cmocka_unit_test_setup(what_is_given_again_is_settled_again, given_start),
        cmocka_unit_test_setup(blocks_of_every_size_are_settled_as_they_are_given, given_start),
        cmocka_unit_test_setup(what_went_back_and_is_touched_again_is_kept, given_start),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
