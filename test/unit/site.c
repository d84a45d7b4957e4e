/* site.c - sites are counted exactly by many threads at once; beyond the table's limit they count as site 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/os.h"
#include "watch/site.h"

#include <pthread.h>
#include <string.h>

static struct hak_site_stats rows[HAK_SITE_COUNT_MAX + 8];

static const struct hak_site_stats *stats_of(hak_site_t site) {
    size_t count = hak_site_stats(rows, HAK_SITE_COUNT_MAX + 8);
    const struct hak_site_stats *found = NULL;
    assert_true(count <= HAK_SITE_COUNT_MAX + 1);
    for (size_t i = 0; i < count; i++)
        if (rows[i].site == site) {
            assert_null(found); /* one row per site */
            found = &rows[i];
        }
    return found;
}

static void nothing_is_counted_at_first(void **state) {
    (void)state;
    assert_int_equal(hak_site_stats(NULL, 0), 0);
    hak_site_note_alloc(0, 100);
    hak_site_note_free(0, 100);
    assert_int_equal(hak_site_stats(rows, 8), 0);
}

static bool refuse_maps(enum hak_os_call call) { return call == HAK_OS_FRESH; }

static void a_site_without_a_table_counts_as_site_0(void **state) {
    (void)state;
    hak_os_fault = refuse_maps;
    hak_site_note_alloc(0xdead0, 100);
    hak_os_fault = NULL;
    hak_site_note_free(0xdead0, 100);
    assert_int_equal(hak_site_stats(rows, 8), 1);
    assert_int_equal(rows[0].site, 0);
    assert_int_equal(rows[0].alloc_bytes, 100);
    assert_int_equal(rows[0].free_bytes, 100);
}

static void a_site_counts_what_it_allocates_and_frees(void **state) {
    (void)state;
    hak_site_t site = HAK_SITE;
    hak_site_note_alloc(site, 48);
    hak_site_note_alloc(site, 64);
    hak_site_note_free(site, 48);
    const struct hak_site_stats *row = stats_of(site);
    assert_non_null(row);
    assert_int_equal(row->alloc_count, 2);
    assert_int_equal(row->alloc_bytes, 112);
    assert_int_equal(row->free_count, 1);
    assert_int_equal(row->free_bytes, 48);
}

static void sites_are_one_per_expansion(void **state) {
    (void)state;
    hak_site_t one = HAK_SITE, two = HAK_SITE;
    assert_true(one != two && one != 0 && two != 0);
}

static void fewer_rows_than_sites_still_tell_how_many(void **state) {
    (void)state;
    hak_site_note_alloc(1, 16);
    hak_site_note_alloc(UINTPTR_MAX, 16);
    struct hak_site_stats one[2];
    memset(one, 0x55, sizeof(one));
    size_t count = hak_site_stats(one, 1);
    assert_true(count >= 3);
    assert_int_equal(one[1].site, 0x5555555555555555u); /* not written */
    assert_int_equal(hak_site_stats(NULL, 0), count);
}

static void a_site_that_never_allocated_frees_as_site_0(void **state) {
    (void)state;
    uint64_t before = stats_of(0) ? stats_of(0)->free_bytes : 0;
    hak_site_note_free(0xdead0, 32);
    assert_null(stats_of(0xdead0));
    assert_int_equal(stats_of(0)->free_bytes, before + 32);
}

enum { THREADS = 4, TURNS = 30000, SITES = 700 };

static void *count_many(void *unused) {
    for (unsigned i = 0; i < TURNS; i++) {
        hak_site_t site = 0x400000 + 16 * (i % SITES);
        hak_site_note_alloc(site, 32);
        hak_site_note_free(site, 32);
    }
    return unused;
}

static void many_threads_lose_no_count(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t allocs = 0, frees = 0;
    for (unsigned i = 0; i < SITES; i++) {
        const struct hak_site_stats *row = stats_of(0x400000 + 16 * i);
        assert_non_null(row);
        assert_int_equal(row->alloc_bytes, row->alloc_count * 32);
        allocs += row->alloc_count;
        frees += row->free_count;
    }
    assert_int_equal(allocs, THREADS * TURNS);
    assert_int_equal(frees, THREADS * TURNS);
}

static void *fill_up(void *number) {
    for (unsigned i = 0; i < 2 * HAK_SITE_COUNT_MAX; i++)
        hak_site_note_alloc(0x10000000 + 8 * (i + (uintptr_t)number), 16);
    return number;
}

static uint64_t allocs_in_all(void) {
    size_t count = hak_site_stats(rows, HAK_SITE_COUNT_MAX + 8);
    uint64_t allocs = 0;
    for (size_t i = 0; i < count; i++)
        allocs += rows[i].alloc_count;
    return allocs;
}

static void beyond_the_limit_sites_count_as_site_0(void **state) {
    (void)state;
    uint64_t before = allocs_in_all();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill_up, (void *)(i * 100)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(hak_site_stats(NULL, 0), HAK_SITE_COUNT_MAX + 1);
    assert_int_equal(allocs_in_all() - before, THREADS * 2 * HAK_SITE_COUNT_MAX);

    uint64_t others = stats_of(0)->free_count;
    hak_site_note_alloc(0x99999999, 16);
    hak_site_note_free(0x99999999, 16);
    assert_null(stats_of(0x99999999));
    assert_int_equal(stats_of(0)->free_count, others + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_counted_at_first),
        cmocka_unit_test(a_site_without_a_table_counts_as_site_0),
        cmocka_unit_test(a_site_counts_what_it_allocates_and_frees),
        cmocka_unit_test(sites_are_one_per_expansion),
        cmocka_unit_test(fewer_rows_than_sites_still_tell_how_many),
        cmocka_unit_test(a_site_that_never_allocated_frees_as_site_0),
        cmocka_unit_test(many_threads_lose_no_count),
        cmocka_unit_test(beyond_the_limit_sites_count_as_site_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
