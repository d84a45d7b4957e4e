/* guard.c - guarded blocks: where they stand, which place comes next, bounds, threads, how many samples are guarded. */
#include "watch/guard.h"

#include "heap/heap.h"
#include "heap/hooks.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/sampler.h"

#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "unit/heap_room.h"

static struct hak_heap *heap;
static uint64_t dice = 42;

__attribute__((noinline)) static void *take(size_t bytes) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_stack_bounds bounds = { 0, 0 };
    hak_atomic_u32 *number = NULL;
    void *block = hak_guard_take(heap, bytes, bytes & -bytes, here, &bounds, &dice, &number);
    if (block) assert_int_equal(hak_load_relaxed(number), 0);
    return block;
}

__attribute__((noinline)) static bool give(void *block) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_stack_bounds bounds = { 0, 0 };
    return hak_guard_free(heap, block, here, &bounds);
}

/* By the kernel: may the byte be read? */
static bool is_open(const void *address) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool open = write(ends[1], address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return open;
}

static size_t page(void) { return hak_os_page_bytes(); }

static void a_block_stands_at_a_closed_page(void **unused) {
    (void)unused;
    unsigned lefts = 0, rights = 0;
    for (unsigned i = 0; i < 400; i++) {
        size_t bytes = i < 200 ? i : (size_t)(dice_next(&dice) % (i < 300 ? 32768 : 1 << 20) + 1), align = bytes & -bytes;
        char *block = take(bytes);
        assert_non_null(block);
        assert_true(hak_guard_holds(block));
        assert_int_equal((uintptr_t)block % (align < 16 ? 16 : align), 0);
        assert_int_equal(hak_guard_usable(block), bytes ? bytes : 1);
        memset(block, 1, bytes);
        size_t rounded = hak_round_up(bytes ? bytes : 1, align < 16 ? 16 : align);
        bool left = (uintptr_t)block % page() == 0 && !is_open(block - 1), right = !is_open(block + rounded);
        assert_true(left || right);
        lefts += left && !right;
        rights += right && !left;
        assert_false(give(block + 16));
        assert_true(give(block));
        assert_false(is_open(block));
        assert_false(give(block));
        assert_int_equal(hak_guard_usable(block), 0);
    }
    assert_true(lefts > 100 && rights > 100);
    assert_int_equal(hakmem_published.guarded_live, 0);
}

static void the_place_that_was_free_longest_comes_next(void **unused) {
    (void)unused;
    enum { COUNT = 64 };
    char *block[COUNT];
    uintptr_t low[COUNT];
    uint32_t count = (uint32_t)hak_options.guard_blocks;
    for (uint32_t i = 0; i < count; i++) assert_true(give(take(1))); /* all were used */
    for (unsigned i = 0; i < COUNT; i++) {
        block[i] = take(100);
        low[i] = hak_guard_near(block[i])->low;
    }
    for (unsigned i = 0; i < COUNT; i++) assert_true(give(block[(i * 7 + 3) % COUNT]));
    for (uint32_t i = 0; i < count - COUNT; i++) {
        char *other = take(1);
        uintptr_t at = hak_guard_near(other)->low;
        for (unsigned k = 0; k < COUNT; k++) assert_int_not_equal(at, low[k]);
        assert_true(give(other));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        char *again = take(100);
        assert_int_equal(hak_guard_near(again)->low, low[(i * 7 + 3) % COUNT]);
        assert_true(give(again));
    }
}

static void bounds_hold(void **unused) {
    (void)unused;
    static char *block[20000];
    uint64_t capacity = hak_options.guard_blocks, shorts = hakmem_published.guard_short;
    unsigned count = 0;
    while ((block[count] = take(10)) != NULL) count++;
    assert_int_equal(count, capacity);
    assert_int_equal(hakmem_published.guarded_live, capacity);
    assert_int_equal(hakmem_published.guard_short, shorts + 1);
    while (count) assert_true(give(block[--count]));
    assert_null(take((1 << 20) + 1));
    uint64_t kb = hak_options.guard_kb;
    hak_options.guard_kb = 10 * page() >> 10;
    while ((block[count] = take(page())) != NULL) count++;
    assert_int_equal(count, 10);
    while (count) assert_true(give(block[--count]));
    hak_options.guard_kb = kb;
    struct hak_census census;
    memset(&census, 0, sizeof census);
    block[0] = take(100);
    hak_guard_census(&census);
    assert_int_equal(census.live[hak_class_of(100)], 1);
    assert_true(give(block[0]));
}

static enum hak_os_call refused;
static bool refuse(enum hak_os_call call) { return call == refused; }

static void what_the_kernel_refuses_is_an_ordinary_block(void **unused) {
    (void)unused;
    refused = HAK_OS_PROTECT;
    char *before = take(64);
    hak_os_fault = refuse;
    uint64_t live = hakmem_published.guarded_live;
    for (unsigned i = 0; i < 1000; i++) assert_null(take(64));
    assert_int_equal(hakmem_published.guarded_live, live);
    assert_true(give(before)); /* it stays open, but it is free */
    assert_false(give(before));
    refused = HAK_OS_RETURN;
    for (unsigned i = 0; i < 1000; i++) {
        char *block = take(300);
        assert_non_null(block);
        assert_true(give(block));
        assert_false(is_open(block));
    }
    hak_os_fault = NULL;
    for (unsigned i = 0; i < 1000; i++) assert_true(give(take(i)));
}

static void the_nearest_block_is_meant(void **unused) {
    (void)unused;
    for (unsigned i = 0; i < 200; i++) {
        char *block = take(64);
        assert_ptr_equal((char *)hak_guard_near(block + 64)->block, block);
        assert_ptr_equal((char *)hak_guard_near(block - 1)->block, block);
        assert_ptr_equal((char *)hak_guard_near(block + 63)->block, block);
        assert_true(give(block));
        assert_ptr_equal((char *)hak_guard_near(block)->block, block);
        assert_int_equal(hak_guard_near(block)->state, HAK_GUARD_FREED);
        assert_true(hak_guard_near(block)->alloc.frame_count > 0 && hak_guard_near(block)->free.frame_count > 0);
    }
    assert_null(hak_guard_near(&dice));
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 3000, HELD = 80 };

static void *thread_run(void *argument) {
    uint64_t random = (uintptr_t)argument;
    char *held[HELD] = { NULL };
    struct hak_stack_bounds bounds = { 0, 0 };
    struct hak_stack_here here = { (uintptr_t)thread_run, (uintptr_t)__builtin_frame_address(0), 0 };
    for (unsigned n = 0; n < ROUNDS; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(random >> 33) % HELD;
        hak_atomic_u32 *number;
        if (held[i]) {
            for (unsigned at = 0; at < 200; at++) REQUIRE(held[i][at] == (char)(uintptr_t)argument);
            REQUIRE(hak_guard_free((struct hak_heap *)&hak_heap_none, held[i], here, &bounds));
        }
        held[i] = hak_guard_take(heap, 200, 16, here, &bounds, &random, &number);
        if (held[i]) memset(held[i], (char)(uintptr_t)argument, 200);
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i]) REQUIRE(hak_guard_free((struct hak_heap *)&hak_heap_none, held[i], here, &bounds));
    return NULL;
}

static void threads_share_places_without_sharing_blocks(void **unused) {
    (void)unused;
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, thread_run, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(hakmem_published.guarded_live, 0);
    assert_in_range(hakmem_published.guarded_freed, hak_options.guard_blocks, hakmem_published.guards.capacity);
}

/* --- one sample in N --- */

/* Samples and guarded ones of so many allocations; the class has its own slab, so that each is counted alike. */
static void run_of(uint64_t rate, uint64_t guard_rate, unsigned allocs, uint64_t *samples, uint64_t *guarded) {
    enum { CLASS = 8 };
    class_is_common(heap, CLASS);
    if (rate) hak_sample_want(HAK_SAMPLE_RECORD, rate, false);
    hak_sample_want(HAK_SAMPLE_GUARD, guard_rate, false);
    uint64_t samples_before = hakmem_published.samples, before = hakmem_published.guarded;
    for (unsigned i = 0; i < allocs; i++) {
        char *block = block_take(heap, CLASS);
        if (HAK_HOOK(watched_free)(heap, block)) continue;
        block_give(heap, block);
    }
    *samples = hakmem_published.samples - samples_before;
    *guarded = hakmem_published.guarded - before;
    hak_sample_want(HAK_SAMPLE_GUARD, 0, false);
    hak_sample_want(HAK_SAMPLE_RECORD, 0, false);
}

/* Within five standard deviations of a Poisson count. */
static void about(uint64_t seen, double expected) {
    double off = (double)seen - expected;
    if (off * off > 25 * expected) fail_msg("%lu, expected %.0f", seen, expected);
}

static void one_sample_in_so_many_is_guarded(void **unused) {
    (void)unused;
    enum { ALLOCS = 2000000, BYTES = 128, RATE = 16384 };
    uint64_t samples, guarded;
    double of_rate = (double)ALLOCS * BYTES / RATE; /* 15,625; p is 1 - exp(-x), and x is small */
    run_of(RATE, RATE, ALLOCS, &samples, &guarded);
    about(guarded, of_rate * (1 - 0.0039));
    assert_int_equal(samples, guarded);
    run_of(RATE, RATE * 10, ALLOCS, &samples, &guarded);
    about(samples, of_rate * (1 - 0.0039));
    about(guarded, of_rate / 10);
    run_of(0, RATE * 10, ALLOCS, &samples, &guarded);
    about(guarded, of_rate / 10);
    assert_int_equal(samples, 0); /* nobody wants to know of them */
    run_of(RATE, 0, ALLOCS, &samples, &guarded);
    assert_int_equal(guarded, 0);
}

static int begin(void **state) {
    hak_options.sample_most = 0;
    if (heap_room_start(state) != 0 || !hak_record_start()) return 1;
    heap = hak_heap_birth(hak_self);
    return heap ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_stands_at_a_closed_page),
        cmocka_unit_test(the_place_that_was_free_longest_comes_next),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(what_the_kernel_refuses_is_an_ordinary_block),
        cmocka_unit_test(the_nearest_block_is_meant),
        cmocka_unit_test(threads_share_places_without_sharing_blocks),
        cmocka_unit_test(one_sample_in_so_many_is_guarded),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
