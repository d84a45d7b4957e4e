/* alone.c - what one thread does at a time, and may leave by a longjmp or by a fork; what is made once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "watch/alone.h"

#include <pthread.h>

static struct hak_alone alone;

/* So far down the stack. */
static __attribute__((noinline)) bool begin_at(unsigned depth) {
    volatile char room[256];
    room[0] = 1;
    bool begun = depth ? begin_at(depth - 1) : hak_alone_begin(&alone);
    __asm__ volatile("" : : "r"(room) : "memory");
    return begun;
}

static void one_at_a_time(void **state) {
    (void)state;
    assert_true(begin_at(4));
    assert_false(begin_at(10)); /* a signal handler, in the middle of it */
    hak_alone_end(&alone);
    assert_true(begin_at(4));
    hak_alone_end(&alone);
}

static void who_left_it_by_a_longjmp_begins_again(void **state) {
    (void)state;
    assert_true(begin_at(4));
    assert_true(begin_at(4));
    assert_true(begin_at(5)); /* by a way that is some frames longer */
    assert_true(begin_at(4));
    assert_false(begin_at(10));
    assert_true(begin_at(2));
    hak_alone_end(&alone);
}

static void *of_another_thread(void *unused) {
    (void)unused;
    struct hak_heap *heap = hak_heap_birth(hak_self);
    bool begun = heap && begin_at(0);
    hak_heap_death(heap);
    return begun ? &alone : NULL;
}

static void another_thread_passes_by(void **state) {
    (void)state;
    pthread_t thread;
    void *begun;
    assert_true(begin_at(4));
    assert_int_equal(pthread_create(&thread, NULL, of_another_thread, NULL), 0);
    pthread_join(thread, &begun);
    assert_null(begun);
    hak_alone_end(&alone);
}

static void threads_without_a_heap_are_not_taken_for_one(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self;
    hak_self = (struct hak_heap *)&hak_heap_none;
    assert_true(begin_at(4));
    assert_false(begin_at(2));
    hak_alone_end(&alone);
    hak_self = mine;
}

static void a_child_begins_what_a_vanished_thread_was_at(void **state) {
    (void)state;
    hak_atomic_u32 made = 0;
    assert_true(begin_at(4));
    assert_true(hak_make_begin(&made));
    assert_false(hak_make_begin(&made));
    hak_add(&hak_epoch, 1);
    assert_true(begin_at(8));
    assert_true(hak_make_begin(&made));
    hak_store_relaxed(&made, (uint32_t)HAK_MADE);
    assert_false(hak_make_begin(&made));
    hak_alone_end(&alone);
    hak_add(&hak_epoch, -1u);
}

static int start(void **state) {
    heap_room_start(state);
    return hak_heap_birth(hak_self) ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(who_left_it_by_a_longjmp_begins_again),
        cmocka_unit_test(another_thread_passes_by),
        cmocka_unit_test(threads_without_a_heap_are_not_taken_for_one),
        cmocka_unit_test(a_child_begins_what_a_vanished_thread_was_at),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
