/* text.c - the text builder says what printf says, cuts where it must, and never writes beyond its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Formats by both, compares, and compares every cut with snprintf's too. */
#define SAME_AS_PRINTF(...)                                                        \
    do {                                                                           \
        char wanted[512], got[512];                                                \
        int length = snprintf(wanted, sizeof(wanted), __VA_ARGS__);                \
        for (size_t capacity = 0; capacity <= (size_t)length + 2; capacity++) {    \
            memset(got, 'x', sizeof(got));                                         \
            struct hak_text text = { got, 0, capacity };                           \
            hak_text_format(&text, __VA_ARGS__);                                   \
            assert_int_equal(hak_text_end(&text), length);                         \
            char cut[512];                                                         \
            memset(cut, 'x', sizeof(cut));                                         \
            snprintf(cut, capacity, "%s", wanted);                                 \
            assert_memory_equal(got + capacity, cut + capacity, 512 - capacity);   \
            if (capacity)                                                          \
                assert_string_equal(got, cut);                                     \
        }                                                                          \
    } while (0)

static void numbers_are_as_printf_writes_them(void **state) {
    (void)state;
    SAME_AS_PRINTF("%d %d %d", 0, -1, INT_MAX);
    SAME_AS_PRINTF("%d", INT_MIN);
    SAME_AS_PRINTF("%ld %ld", LONG_MIN, LONG_MAX);
    SAME_AS_PRINTF("%u %lu %zu", UINT_MAX, ULONG_MAX, (size_t)0);
    SAME_AS_PRINTF("%x %lx %llu %jd", 0xbeefu, ULONG_MAX, 12345678901234567890ull, (intmax_t)-5);
}

static void widths_and_sides_are_as_printf_has_them(void **state) {
    (void)state;
    SAME_AS_PRINTF("[%5d][%-5d][%05d][%2d]", -42, -42, -42, -42);
    SAME_AS_PRINTF("[%10lu][%-10lu][%010lu]", 7ul, 7ul, 7ul);
    SAME_AS_PRINTF("[%8s][%-8s][%.3s][%8.2s]", "block", "block", "block", "block");
    SAME_AS_PRINTF("[%*d][%*d][%.*s]", 6, 3, -6, 3, 2, "slab");
    SAME_AS_PRINTF("[%3c][%-3c][%c]", 'a', 'b', 'c');
}

static void pointers_are_as_printf_writes_them(void **state) {
    (void)state;
    SAME_AS_PRINTF("%p %p", (void *)0x10, (void *)UINTPTR_MAX);
    SAME_AS_PRINTF("[%20p][%-20p]", (void *)0xabc, (void *)0xabc);
#ifdef __GLIBC__ /* musl writes 0 for NULL */
    SAME_AS_PRINTF("%p [%9p]", (void *)0, (void *)0);
#endif
    char bytes[32];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_pointer(&text, (void *)0x7f00);
    hak_text_char(&text, ' ');
    hak_text_pointer(&text, NULL);
    hak_text_end(&text);
    assert_string_equal(bytes, "0x7f00 (nil)");
}

static void percent_and_unknown_conversions_stay(void **state) {
    (void)state;
    SAME_AS_PRINTF("100%%");
    char bytes[64];
    struct hak_text text = HAK_TEXT(bytes);
    const char *format = "a %q b %"; /* not literal: the compiler would complain, rightly */
    va_list none;
    memset(&none, 0, sizeof(none));
    hak_text_format_list(&text, format, none);
    hak_text_end(&text);
    assert_string_equal(bytes, "a %q b %");
}

static void a_null_string_is_said_to_be_one(void **state) {
    (void)state;
    char bytes[64];
    struct hak_text text = HAK_TEXT(bytes);
    const char *volatile nothing = NULL;
    hak_text_format(&text, "%s", nothing);
    hak_text_str(&text, nothing);
    hak_text_end(&text);
    assert_string_equal(bytes, "(null)(null)");
}

static void padded_columns_line_up(void **state) {
    (void)state;
    char bytes[64];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str_padded(&text, "visit", 8);
    hak_text_u64_padded(&text, 12, 5);
    hak_text_char(&text, '|');
    hak_text_i64(&text, INT64_MIN);
    hak_text_char(&text, '|');
    hak_text_hex(&text, 255);
    hak_text_char(&text, '|');
    hak_text_u64(&text, UINT64_MAX);
    hak_text_end(&text);
    assert_string_equal(bytes, "visit      12|-9223372036854775808|ff|18446744073709551615");
}

static void a_cut_text_counts_its_whole_length(void **state) {
    (void)state;
    char bytes[9] = "12345678";
    struct hak_text text = { bytes, 0, 4 };
    hak_text_str(&text, "abcdefghij");
    assert_int_equal(text.used, 10);
    assert_int_equal(hak_text_held(&text), 4);
    assert_string_equal(bytes, "abcd5678");
    assert_int_equal(hak_text_end(&text), 10);
    assert_string_equal(bytes, "abc");

    struct hak_text nowhere = { NULL, 0, 0 };
    hak_text_format(&nowhere, "%d blocks", 12);
    assert_int_equal(hak_text_end(&nowhere), 9);
}

static void a_line_ends_with_one_newline_however_long_it_is(void **state) {
    (void)state;
    char bytes[8];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str(&text, "ab");
    hak_text_end_line(&text);
    hak_text_end_line(&text);
    assert_int_equal(text.used, 3);
    assert_memory_equal(bytes, "ab\n", 3);
    hak_text_str(&text, "far too long");
    hak_text_end_line(&text);
    assert_int_equal(hak_text_held(&text), 8);
    assert_int_equal(bytes[7], '\n');
}

static void foreign_strings_cannot_break_a_line(void **state) {
    (void)state;
    char bytes[64];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_foreign(&text, "a\nb\033[31m\xc3", 100);
    hak_text_char(&text, '|');
    hak_text_foreign(&text, "0123456789", 4);
    hak_text_char(&text, '|');
    hak_text_foreign(&text, "0123", 4);
    hak_text_end(&text);
    assert_string_equal(bytes, "a?b?[31m?|0123...|0123");
}

static void json_strings_are_escaped(void **state) {
    (void)state;
    char bytes[64];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_json(&text, "a\"b\\c\nd");
    hak_text_end(&text);
    assert_string_equal(bytes, "a\\\"b\\\\c\\u000ad");
}

static void names_differ_by_what_has_to_be_typed(void **state) {
    (void)state;
    assert_true(hak_name_same("PURGE_delay", "purge_DELAY"));
    assert_false(hak_name_same("stats", "stat"));
    assert_false(hak_name_same("stat", "stats"));
    assert_int_equal(hak_name_distance("stats", "STATS"), 0);
    assert_int_equal(hak_name_distance("statz", "stats"), 1);
    assert_int_equal(hak_name_distance("stat", "stats"), 1);
    assert_int_equal(hak_name_distance("sttas", "stats"), 2);
    assert_int_equal(hak_name_distance("kitten", "sitting"), 3);
    assert_int_equal(hak_name_distance("", "report"), 6);
    assert_int_equal(hak_name_distance("report", ""), 6);

    char wide[201];
    memset(wide, 'a', 200);
    wide[200] = 0;
    assert_int_equal(hak_name_distance(wide, wide), 200 - HAK_NAME_COMPARED); /* compared so far, then counted */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_as_printf_writes_them),
        cmocka_unit_test(widths_and_sides_are_as_printf_has_them),
        cmocka_unit_test(pointers_are_as_printf_writes_them),
        cmocka_unit_test(percent_and_unknown_conversions_stay),
        cmocka_unit_test(a_null_string_is_said_to_be_one),
        cmocka_unit_test(padded_columns_line_up),
        cmocka_unit_test(a_cut_text_counts_its_whole_length),
        cmocka_unit_test(a_line_ends_with_one_newline_however_long_it_is),
        cmocka_unit_test(foreign_strings_cannot_break_a_line),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(names_differ_by_what_has_to_be_typed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
