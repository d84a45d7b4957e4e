/* huge_runs.c - neighbours that become huge and small again at once, in two threads: at the end none is counted.
 *
 * Owns: a copy of huge.c, whose flag() and unflag() nobody else calls at such a pace.
 *
 * ctest: native
 */
#include "../../src/memory/huge.c"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

enum { ROUNDS = 5000 };
static pthread_barrier_t both;

static void *flag_and_unflag(void *half) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&both);
        flag(*(size_t *)half, 1);
        pthread_barrier_wait(&both);
        unflag(*(size_t *)half, true);
    }
    return NULL;
}

static void neighbours_at_once_are_counted_to_none(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(HAK_CHUNK_GRANULES, HAK_CHUNK_GRANULES, &dirty);
    assert_true(granule != HAK_NO_GRANULE);
    pthread_t threads[2];
    size_t halves[2] = { granule / HAK_HALF_GRANULES, granule / HAK_HALF_GRANULES + 1 };
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, flag_and_unflag, &halves[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(hak_chunk_at(granule / HAK_CHUNK_GRANULES)->huge, 0);
    assert_int_equal(hak_load_relaxed(&half_count), 0);
    assert_int_equal(hak_load_relaxed(&run_count), 0);
    hak_span_give(granule, HAK_CHUNK_GRANULES, HAK_SPAN_DIRTY);
}

int main(void) {
    room_region_start();
    const struct CMUnitTest tests[] = { cmocka_unit_test(neighbours_at_once_are_counted_to_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
