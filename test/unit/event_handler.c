/* event_handler.c - a signal handler allocates while its thread puts a slab into the list of its class.
 *
 * Method: the file under test is compiled in here, and a handler may be called between two of its stores.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

static void (*handler)(void);

static void passes(void) {
    void (*call)(void) = handler;
    handler = NULL;
    if (call) call();
}

#undef atomic_signal_fence
#define atomic_signal_fence(order) (passes(), __atomic_signal_fence(order))
#include "heap/event.c"

enum { CLASS = 16, SLABS = 4, BLOCKS_MAX = 4096 };
static void *blocks[BLOCKS_MAX];
static struct hak_heap *heap;
static struct hak_slab *slab[SLABS];
static unsigned count;

static void take(void) {
    assert_true(count < BLOCKS_MAX);
    blocks[count++] = block_take(heap, CLASS);
}

/* An eighth of it is free: it goes into the list. */
static void relist(unsigned number) {
    unsigned capacity = hak_classes[CLASS].capacity, i = number * capacity;
    for (; slab[number]->place != HAK_SLAB_PARTIAL; i++) {
        assert_true(i < (number + 1) * capacity);
        block_give(heap, blocks[i]);
        blocks[i] = NULL;
    }
}

static void the_first_of_the_list_is_taken(void) {
    struct hak_slab *first = hak_slab_named(hak_shelf_of(heap, CLASS)->partial);
    while (first->place == HAK_SLAB_PARTIAL) take();
}

static unsigned times_in_list(const struct hak_slab *one, unsigned most) {
    unsigned times = 0;
    hak_slab_name name = hak_shelf_of(heap, CLASS)->partial;
    for (; name && most > 0; name = hak_slab_named(name)->next, most--) times += hak_slab_named(name) == one;
    assert_int_equal(name, 0); /* it ends */
    return times;
}

static void what_a_handler_took_off_the_list_is_not_in_it(void **state) {
    (void)state;
    heap = heap_make();
    class_is_common(heap, CLASS);
    unsigned capacity = hak_classes[CLASS].capacity;
    while (count <= SLABS * capacity) take();
    for (unsigned i = 0; i < SLABS; i++) {
        slab[i] = slab_of(blocks[i * capacity]);
        assert_int_equal(slab[i]->place, HAK_SLAB_FULL);
        for (unsigned k = 0; k < i; k++) assert_ptr_not_equal(slab[i], slab[k]);
    }
    struct hak_slab *first = slab[2];
    for (unsigned i = 0; i < 3; i++) relist(i);
    assert_ptr_equal(hak_slab_named(hak_shelf_of(heap, CLASS)->partial), first);
    handler = the_first_of_the_list_is_taken;
    relist(3);
    assert_null(handler);
    assert_true(first->place != HAK_SLAB_PARTIAL);
    for (unsigned i = 0; i < SLABS; i++) assert_int_equal(times_in_list(slab[i], SLABS), slab[i] != first);
    for (unsigned i = 0; i < count; i++)
        if (blocks[i]) block_give(heap, blocks[i]);
    heap_end(heap);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_a_handler_took_off_the_list_is_not_in_it) };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
