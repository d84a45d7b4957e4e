/* tray.c - blocks apart from all slabs: every class's alignment and size, double frees, threads, nothing kept. */
#include "watch/tray.h"

#include "heap/heap.h"
#include "heap/hooks.h"

#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void every_class_has_its_blocks_and_gets_them_back(void **unused) {
    (void)unused;
    enum { EACH = 70 };
    static char *block[HAK_CLASS_COUNT][EACH];
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        for (unsigned i = 0; i < EACH; i++) {
            hak_atomic_u32 *number;
            char *got = block[c][i] = hak_tray_take(c, &number);
            size_t bytes = hak_classes[c].block_bytes;
            assert_non_null(got);
            assert_int_equal((uintptr_t)got & ((bytes & -bytes) - 1), 0);
            assert_ptr_equal(hak_load_relaxed(&hak_granule_at(hak_granule_of(got))->owner), HAK_WATCHED);
            assert_int_equal(hak_load_relaxed(number), 0);
            memset(got, (int)(c + i), bytes);
        }
    uint64_t live[HAK_CLASS_COUNT] = { 0 }, handed[HAK_CLASS_COUNT] = { 0 };
    hak_tray_census(live, handed);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live[c], EACH);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        for (unsigned i = 0; i < EACH; i++) {
            char *got = block[c][i];
            struct hak_tray_place place;
            size_t bytes = hak_classes[c].block_bytes;
            assert_int_equal((unsigned char)got[0], (c + i) & 0xff);
            assert_int_equal((unsigned char)got[bytes - 1], (c + i) & 0xff); /* no other lies over it */
            assert_true(hak_tray_find(got + bytes - 1, &place));
            assert_ptr_equal(place.start, got);
            assert_int_equal(place.bytes, bytes);
            assert_false(place.is_free);
            assert_false(hak_tray_give(got + 8));
            assert_true(hak_tray_give(got));
            assert_false(hak_tray_give(got));
        }
    hak_tray_census(live, handed);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live[c], EACH); /* none were added */
}

/* Before, what was allocated next lay where the freed block had: a second free of that one freed the other, unseen. */
static void what_was_freed_is_not_handed_out_at_once(void **unused) {
    (void)unused;
    for (unsigned with_others = 0; with_others < 2; with_others++) {
        hak_atomic_u32 *number;
        char *other = with_others ? hak_tray_take(1, &number) : NULL; /* else the granule goes back with its last block */
        char *freed = hak_tray_take(5, &number);
        assert_true(hak_tray_give(freed));
        for (unsigned c = 17; c < 20; c++) {
            char *got = hak_tray_take(c, &number);
            assert_true(got + hak_classes[c].block_bytes <= freed || freed < got);
            assert_false(hak_tray_give(freed));
            assert_true(hak_tray_give(got));
        }
        if (other) assert_true(hak_tray_give(other));
    }
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 60000, HELD = 64 };

static void *thread_run(void *argument) {
    uint64_t random = (uintptr_t)argument * 0x9e3779b97f4a7c15u;
    char *held[HELD] = { NULL };
    unsigned bytes[HELD] = { 0 };
    for (unsigned n = 0; n < ROUNDS; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(random >> 33) % HELD, c = 1 + (unsigned)(random >> 40) % (HAK_CLASS_COUNT - 1);
        if (held[i]) {
            for (unsigned at = 0; at < bytes[i]; at += 64) assert_int_equal((unsigned char)held[i][at], (uintptr_t)argument);
            assert_true(hak_tray_give(held[i]));
        }
        hak_atomic_u32 *number;
        held[i] = hak_tray_take(c, &number);
        assert_non_null(held[i]);
        bytes[i] = hak_classes[c].block_bytes;
        for (unsigned at = 0; at < bytes[i]; at += 64) held[i][at] = (char)(uintptr_t)argument;
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i]) assert_true(hak_tray_give(held[i]));
    return NULL;
}

static void threads_share_trays_without_sharing_blocks(void **unused) {
    (void)unused;
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, thread_run, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    uint64_t live[HAK_CLASS_COUNT] = { 0 }, handed[HAK_CLASS_COUNT] = { 0 };
    hak_tray_census(live, handed);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live[c], 0);
}

int main(void) {
    if (!hak_region_start(0)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_has_its_blocks_and_gets_them_back),
        cmocka_unit_test(what_was_freed_is_not_handed_out_at_once),
        cmocka_unit_test(threads_share_trays_without_sharing_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
