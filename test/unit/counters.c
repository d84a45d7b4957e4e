/* counters.c - every counter has an index, a text, and one writer whose counts a reader can add up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rules/counters.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

static void every_counter_has_a_name_a_unit_and_a_text(void **state) {
    (void)state;
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++) {
        const struct hak_counter_row *row = &hak_counter_rows[i];
        assert_true(row->name[0] && row->unit[0] && row->what[0]);
        for (const char *c = row->name; *c; c++)
            assert_true(islower((unsigned char)*c) || *c == '_');
        assert_null(strchr(row->what, '"')); /* the text goes into tables and pages as it is */
    }
}

static void names_differ(void **state) {
    (void)state;
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(hak_counter_rows[i].name, hak_counter_rows[j].name);
}

static void the_index_is_the_row(void **state) {
    (void)state;
    unsigned next = 0;
#define HAK_COUNTER(name_, unit_, what_)                                   \
    assert_int_equal(HAK_C_##name_, next++);                               \
    assert_string_equal(hak_counter_rows[HAK_C_##name_].name, #name_);     \
    assert_string_equal(hak_counter_rows[HAK_C_##name_].unit, #unit_);     \
    assert_string_equal(hak_counter_rows[HAK_C_##name_].what, what_);
#include "rules/counters.def"
#undef HAK_COUNTER
}

static void counting_adds_to_one_counter_only(void **state) {
    (void)state;
    struct hak_counters counters = {{0}}, sum = {{0}};
    HAK_COUNT(&counters, free_event, 1);
    HAK_COUNT(&counters, return_pages, 512);
    HAK_COUNT(&counters, return_pages, 3);
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        assert_int_equal(counters.n[i], i == HAK_C_free_event ? 1 : i == HAK_C_return_pages ? 515 : 0);
    hak_counters_add(&sum, &counters);
    hak_counters_add(&sum, &counters);
    assert_int_equal(sum.n[HAK_C_return_pages], 1030);
}

enum { AMOUNT = 200000 };
static struct hak_counters shared;

static void *count_much(void *unused) {
    for (int i = 0; i < AMOUNT; i++)
        HAK_COUNT(&shared, free_event, 1);
    return unused;
}

static void a_reader_sees_numbers_that_only_grow(void **state) {
    (void)state;
    pthread_t owner;
    uint64_t last = 0;
    assert_int_equal(pthread_create(&owner, NULL, count_much, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        struct hak_counters sum = {{0}};
        hak_counters_add(&sum, &shared);
        assert_true(sum.n[HAK_C_free_event] >= last && sum.n[HAK_C_free_event] <= AMOUNT);
        last = sum.n[HAK_C_free_event];
    }
    pthread_join(owner, NULL);
    assert_int_equal(shared.n[HAK_C_free_event], AMOUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_counter_has_a_name_a_unit_and_a_text),
        cmocka_unit_test(names_differ),
        cmocka_unit_test(the_index_is_the_row),
        cmocka_unit_test(counting_adds_to_one_counter_only),
        cmocka_unit_test(a_reader_sees_numbers_that_only_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
