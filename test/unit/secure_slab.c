/* secure_slab.c - what lies behind a slab under the secure level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/slab_room.h"

#include "slab/secure.h"

static size_t watched;
static unsigned opened_count, live_count;

static bool look(enum hak_os_call call) {
    opened_count += call == HAK_OS_PROTECT;
    live_count += call == HAK_OS_PROTECT && hak_slab_live(watched);
    return false;
}

/* A thread that vanishes by a fork once it is anybody's must leave no slab that the child would end: it would give it a second time. */
static void what_lies_behind_a_slab_is_given_when_that_has_ended(void **state) {
    (void)state;
    struct hak_slab *slab = slab_cut(5);
    watched = hak_slab_granule(slab);
    assert_true(slab->is_guarded);
    size_t number = watched / HAK_CHUNK_GRANULES, behind = watched + hak_slab_class(slab)->granules;
    assert_true(hak_load_relaxed(&hak_chunk_at(number)->used) >> behind % HAK_CHUNK_GRANULES & 1);
    hak_os_fault = look;
    slab_end(slab);
    hak_os_fault = NULL;
    assert_int_equal(opened_count, 1);
    assert_int_equal(live_count, 0);
    assert_false(hak_load_relaxed(&hak_chunk_at(number)->used) >> behind % HAK_CHUNK_GRANULES & 1);
}

static int start(void **state) {
    slab_room_start(state);
    hak_secure_keys_make();
    hak_store_relaxed(&hak_secure.has_guards, 0); /* which are asked for by another call */
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_behind_a_slab_is_given_when_that_has_ended),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
