/* sampler.c - a heap that could not get what sampling keeps of it: nothing of it is sampled, and it is asked again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/hooks.h"
#include "os/os.h"
#include "watch/sampler.h"

static bool refuse_maps(enum hak_os_call call) { return call == HAK_OS_FRESH; }

/* A count of a heap that does not follow carries all the same, after 2^32 blocks above 1 KiB that were kept. */
static void a_count_that_carries_before_the_heap_follows_is_set_back(void **state) {
    (void)state;
    struct hak_heap *heap = hak_heap_birth(hak_self);
    assert_non_null(heap);
    hak_sample_want(HAK_SAMPLE_RECORD, 4096, false);
    uint32_t generation = hak_load_relaxed(&hak_hooks.generation);
    hak_os_fault = refuse_maps;
    HAK_HOOK(follow)(heap);
    hak_os_fault = NULL;
    assert_null(heap->watch);
    assert_int_not_equal(heap->follows, generation); /* so that it is asked again */

    char block[16];
    unsigned middle = HAK_SMALL_CLASS_MAX + 3, small = 4;
    hak_middle_of(heap, middle)->ahead = 5;
    assert_ptr_equal(HAK_HOOK(kept)(2000, heap, middle, block), block);
    assert_int_equal(hak_middle_of(heap, middle)->ahead, 0);
    assert_ptr_equal(HAK_HOOK(visited)(50, heap, small, block), block);
    assert_true(hak_shelf_of(heap, small)->ahead >> 62); /* far from the next carry */
    bool zeroed = false;
    heap->large_ahead = 5;
    assert_null(HAK_HOOK(large_apart)(heap, 1 << 20, 1, &zeroed));
    assert_true(heap->large_ahead >> 62);
    HAK_HOOK(large_taken)(heap, block, 1 << 20);

    HAK_HOOK(follow)(heap);
    assert_non_null(heap->watch);
    assert_int_equal(heap->follows, generation);
    hak_sample_want(HAK_SAMPLE_RECORD, 0, false);
}

/* A handler that left a sample by longjmp left the mark, and the heap took none any more. */
static void a_sample_that_was_left_ends_after_a_second(void **state) {
    (void)state;
    struct hak_heap *heap = hak_heap_birth(hak_self);
    assert_non_null(heap);
    hak_sample_want(HAK_SAMPLE_RECORD, 4096, false);
    HAK_HOOK(follow)(heap);
    struct hak_watch *watch = heap->watch;
    assert_non_null(watch);
    char block[16];
    unsigned small = 4;
    for (int is_left = 0; is_left < 2; is_left++) {
        watch->drawn[small] = hak_load_relaxed(&hak_hooks.generation);
        watch->busy = hak_load_relaxed(&hak_epoch);
        watch->busy_ns = hak_os_clock_ns() - (is_left ? UINT64_C(2000000000) : 0);
        hak_shelf_of(heap, small)->ahead = 0; /* the block at hand is a sample */
        hak_bin_of(heap, small)->base = block; /* where it goes back to, if it is */
        void *got = HAK_HOOK(visited)(50, heap, small, block);
        hak_bin_of(heap, small)->word = 0;
        assert_non_null(got);
        assert_int_equal(watch->busy, is_left ? 0 : hak_load_relaxed(&hak_epoch));
        if (!is_left) assert_ptr_equal(got, block);
    }
    hak_sample_want(HAK_SAMPLE_RECORD, 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_count_that_carries_before_the_heap_follows_is_set_back),
        cmocka_unit_test(a_sample_that_was_left_ends_after_a_second),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
