/* mail_handler.c - a signal handler allocates while its thread reads its mail, between two instructions of that.
 *
 * Method: the file under test is compiled in here, and each of its reads of a slab's mail_next may call a handler first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

static struct hak_slab *watched;
static void (*handler)(void);

static void reads(const void *place) {
    void (*call)(void) = handler;
    if (!call || place != (const void *)&watched->mail_next) return;
    handler = NULL;
    call();
}

#undef hak_load_relaxed
#define hak_load_relaxed(p) (reads(p), atomic_load_explicit((p), memory_order_relaxed))
#include "heap/mail.c"

enum { CLASS = 16, BLOCKS = 1024, WORD = 64 };
static void *blocks[BLOCKS];
static struct hak_heap *owner, *stranger;
static unsigned capacity;

static void by_stranger(void *block) {
    block_give(stranger, block);
    hak_batch_flush(stranger);
}

static void other_mail_is_read_and_the_slab_comes_again(void) {
    by_stranger(blocks[capacity]);
    hak_mail_take(owner);
    by_stranger(blocks[WORD]);
}

static void a_mailbox_never_becomes_a_ring(void **state) {
    (void)state;
    owner = heap_make();
    stranger = heap_make();
    capacity = hak_classes[CLASS].capacity;
    assert_true(capacity >= 3 * WORD && 2 * capacity <= BLOCKS);
    class_is_common(owner, CLASS);
    for (unsigned i = 0; i < 2 * capacity; i++) blocks[i] = block_take(owner, CLASS);
    watched = slab_of(blocks[0]);
    assert_ptr_not_equal(slab_of(blocks[capacity]), watched);
    assert_ptr_equal(slab_of(blocks[2 * WORD]), watched);
    by_stranger(blocks[0]);
    handler = other_mail_is_read_and_the_slab_comes_again;
    hak_mail_take(owner);
    assert_null(handler);
    by_stranger(blocks[2 * WORD]);
    assert_ptr_not_equal(atomic_load(&watched->mail_next), watched);
    hak_mail_take(owner);
    assert_int_equal(live_blocks(CLASS), 2 * capacity - 4);
    for (unsigned i = 0; i < 2 * capacity; i++)
        if (i != 0 && i != WORD && i != 2 * WORD && i != capacity) block_give(owner, blocks[i]);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_mailbox_never_becomes_a_ring) };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
