/* options.c - options are read from the environment with one line for each mistake, and set and read by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hakmem/hakmem.h"
#include "rules/options.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hak_options defaults;

static int before_each(void **state) {
    (void)state;
    hak_options = defaults;
    return 0;
}

/* Loads the environment and gives back what was said on standard error. */
static const char *load(const char *const *entries) {
    static char said[16384];
    int ends[2], saved = dup(2);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 2);
    hak_options_load((char **)(uintptr_t)entries);
    dup2(saved, 2);
    close(saved);
    close(ends[1]);
    size_t used = 0;
    ssize_t part;
    while ((part = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0)
        used += (size_t)part;
    close(ends[0]);
    said[used] = 0;
    return said;
}

#define LOAD(...) load((const char *const[]){ __VA_ARGS__, NULL })

static void the_defaults_hold_before_anything_runs(void **state) {
    (void)state;
#define HAK_OPTION(name, default_, min, max, when, what) assert_int_equal(defaults.name, default_);
#define HAK_OPTION_TEXT(name, when, what) assert_string_equal(defaults.name, "");
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT
    hak_options_load(NULL);
    assert_memory_equal(&hak_options, &defaults, sizeof(defaults));
}

static void the_environment_sets_options_silently(void **state) {
    (void)state;
    const char *said = LOAD("PATH=/bin", "HAKMEM_STATS=1", "HAKMEM_PURGE_DELAY_MS=5", "HAKMEM_REPORT=/tmp/a=b %p",
                            "HAKMEM_LIB=/usr/lib/libhakmem.so", "HAKMEM", "HAKMEMORY=1", "hakmem_stats=0");
    assert_string_equal(said, "");
    assert_int_equal(hak_options.stats, 1);
    assert_int_equal(HAK_OPT(purge_delay_ms), 5);
    assert_string_equal(hak_options.report, "/tmp/a=b %p");
}

static void the_limits_themselves_are_accepted(void **state) {
    (void)state;
    assert_string_equal(LOAD("HAKMEM_WORD_BYTES=1024", "HAKMEM_FREE_SHARE=1024", "HAKMEM_PURGE_DELAY_MS=0"), "");
    assert_int_equal(hak_options.word_bytes, 1024);
    assert_int_equal(hak_options.free_share, 1024);
    assert_int_equal(hak_options.purge_delay_ms, 0);
}

static void switches_take_words(void **state) {
    (void)state;
    static const struct { const char *entry; unsigned value; } rows[] = {
        { "HAKMEM_STATS=on", 1 }, { "HAKMEM_STATS=TRUE", 1 }, { "HAKMEM_STATS=Yes", 1 }, { "HAKMEM_STATS=1", 1 },
        { "HAKMEM_STATS=off", 0 }, { "HAKMEM_STATS=false", 0 }, { "HAKMEM_STATS=no", 0 }, { "HAKMEM_STATS=0", 0 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        hak_options.stats = !rows[i].value;
        assert_string_equal(LOAD(rows[i].entry), "");
        assert_int_equal(hak_options.stats, rows[i].value);
    }
    assert_string_equal(LOAD("HAKMEM_FREE_SHARE=on"),
                        "hakmem: HAKMEM_FREE_SHARE=on is not a number from 1 to 1024; the default 8 is used\n");
}

static void a_wrong_name_is_told_with_the_nearest(void **state) {
    (void)state;
    assert_string_equal(LOAD("HAKMEM_STATZ=1"),
                        "hakmem: unknown option HAKMEM_STATZ; did you mean HAKMEM_STATS?\n");
    assert_string_equal(LOAD("HAKMEM_stats=1"),
                        "hakmem: unknown option HAKMEM_stats; did you mean HAKMEM_STATS?\n");
    assert_string_equal(LOAD("HAKMEM_PURGE_DELAY=1"),
                        "hakmem: unknown option HAKMEM_PURGE_DELAY; did you mean HAKMEM_PURGE_DELAY_MS?\n");
    assert_string_equal(LOAD("HAKMEM_WALLPAPER=1"),
                        "hakmem: unknown option HAKMEM_WALLPAPER; 'hakmem options' lists those there are\n");
    assert_string_equal(LOAD("HAKMEM_=1"), "hakmem: unknown option HAKMEM_; 'hakmem options' lists those there are\n");
    assert_memory_equal(&hak_options, &defaults, sizeof(defaults));
}

static void a_wrong_value_is_told_and_the_default_stays(void **state) {
    (void)state;
    static const char *const values[] = { "banana", "", "2", "-1", "1 ", " 1", "0x1", "1.0",
                                          "18446744073709551616", "99999999999999999999999999" };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char entry[128], wanted[256];
        snprintf(entry, sizeof(entry), "HAKMEM_STATS=%s", values[i]);
        snprintf(wanted, sizeof(wanted), "hakmem: %s is not a number from 0 to 1; the default 0 is used\n", entry);
        assert_string_equal(LOAD(entry), wanted);
        assert_int_equal(hak_options.stats, 0);
    }
}

static void each_mistake_is_one_line_however_wild(void **state) {
    (void)state;
    char wild[3000];
    memset(wild, 'Z', sizeof(wild) - 1);
    wild[sizeof(wild) - 1] = 0;
    memcpy(wild, "HAKMEM_", 7);
    wild[2000] = '=';
    wild[500] = '\n';
    const char *said = LOAD(wild, "HAKMEM_STATS=\n\n\033[2J");
    const char *first = strchr(said, '\n');
    assert_non_null(first);
    const char *second = strchr(first + 1, '\n');
    assert_non_null(second);
    assert_int_equal(second[1], 0);
    assert_null(strchr(said, '\033'));
    assert_true(strlen(said) < 600);
}

static void a_text_that_is_too_long_is_not_cut_but_left_out(void **state) {
    (void)state;
    char entry[600] = "HAKMEM_REPORT=";
    size_t name = strlen(entry);
    memset(entry + name, 'p', HAK_OPTION_TEXT_BYTES - 1);
    assert_string_equal(LOAD(entry), "");
    assert_int_equal(strlen(hak_options.report), HAK_OPTION_TEXT_BYTES - 1);

    hak_options = defaults;
    entry[name + HAK_OPTION_TEXT_BYTES - 1] = 'p';
    const char *said = LOAD(entry);
    assert_non_null(strstr(said, "is longer than 255 bytes; it is ignored\n"));
    assert_string_equal(hak_options.report, "");
}

static void of_two_the_first_counts_as_for_getenv(void **state) {
    (void)state;
    assert_string_equal(LOAD("HAKMEM_FREE_MAX_MB=3", "HAKMEM_FREE_MAX_MB=4"), "");
    assert_int_equal(hak_options.free_max_mb, 3);
}

static void setting_while_it_runs(void **state) {
    (void)state;
    errno = 77;
    assert_int_equal(hak_option_set("purge_delay_ms", "120"), 0);
    assert_int_equal(hak_option_set("HAKMEM_free_SHARE", "4"), 0);
    assert_int_equal(HAK_OPT(purge_delay_ms), 120);
    assert_int_equal(HAK_OPT(free_share), 4);
    assert_int_equal(hak_option_set("purge_delay", "1"), ENOENT);
    assert_int_equal(hak_option_set("", "1"), ENOENT);
    assert_int_equal(hak_option_set("HAKMEM_", "1"), ENOENT);
    assert_int_equal(hak_option_set(NULL, "1"), ENOENT);
    assert_int_equal(hak_option_set("free_share", "four"), EINVAL);
    assert_int_equal(hak_option_set("free_share", ""), EINVAL);
    assert_int_equal(hak_option_set("free_share", NULL), EINVAL);
    assert_int_equal(hak_option_set("free_share", "0"), ERANGE);
    assert_int_equal(hak_option_set("free_share", "1025"), ERANGE);
    assert_int_equal(hak_option_set("free_share", "99999999999999999999"), ERANGE);
    assert_int_equal(hak_option_set("stats", "1"), EPERM);
    assert_int_equal(hak_option_set("report", "/tmp/x"), EPERM);
    assert_int_equal(HAK_OPT(free_share), 4);
    assert_int_equal(errno, 77);
}

static void getting_writes_like_snprintf(void **state) {
    (void)state;
    char bytes[16] = "xxxxxxxxxxxxxxx";
    assert_int_equal(hak_option_get("PURGE_DELAY_MS", bytes, sizeof(bytes)), 3);
    assert_string_equal(bytes, "800");
    assert_int_equal(hak_option_get("hakmem_word_bytes", bytes, 3), 5);
    assert_string_equal(bytes, "65");
    assert_int_equal(hak_option_get("word_bytes", NULL, 0), 5);
    assert_int_equal(hak_option_get("nonsense", bytes, sizeof(bytes)), 0);
    assert_int_equal(hak_option_get(NULL, bytes, sizeof(bytes)), 0);
    LOAD("HAKMEM_REPORT=/tmp/x");
    assert_int_equal(hak_option_get("report", bytes, sizeof(bytes)), 6);
    assert_string_equal(bytes, "/tmp/x");
}

static void what_the_user_set_is_not_steered(void **state) {
    (void)state;
    assert_true(hak_option_steer(HAK_O_relist_share, 4));
    assert_int_equal(HAK_OPT(relist_share), 4);
    assert_false(hak_option_steer(HAK_O_relist_share, 65)); /* outside its range */
    assert_false(hak_option_steer(HAK_O_stats, 1));         /* START */
    assert_false(hak_option_steer(HAK_O_report, 1));        /* a text */
    assert_false(hak_option_steer(HAK_OPTION_COUNT, 1));
    assert_int_equal(HAK_OPT(relist_share), 4);
    assert_int_equal(hak_option_set("relist_share", "16"), 0);
    assert_true(hak_option_is_pinned(HAK_O_relist_share));
    assert_false(hak_option_steer(HAK_O_relist_share, 4));
    assert_int_equal(HAK_OPT(relist_share), 16);
    assert_string_equal(LOAD("HAKMEM_WORD_BYTES=8192"), "");
    assert_false(hak_option_steer(HAK_O_word_bytes, 24576));
    assert_int_equal(HAK_OPT(word_bytes), 8192);
}

static void *user_sets(void *last) {
    char text[16];
    for (unsigned i = 1; i <= 20000; i++) {
        snprintf(text, sizeof(text), "%u", 100 + i % 7 * 100);
        hak_option_set("free_max_mb", text);
    }
    *(unsigned *)last = 100 + 20000 % 7 * 100;
    return NULL;
}

static void the_users_last_word_stands_beside_a_steering_thread(void **state) {
    (void)state;
    pthread_t thread;
    unsigned last = 0;
    assert_int_equal(pthread_create(&thread, NULL, user_sets, &last), 0);
    for (unsigned i = 0; i < 200000; i++)
        hak_option_steer(HAK_O_free_max_mb, i % 2 ? 1 : 5);
    pthread_join(thread, NULL);
    assert_int_equal(HAK_OPT(free_max_mb), last);
}

static void minimal_turns_all_of_learning_off(void **state) {
    (void)state;
    assert_string_equal(LOAD("HAKMEM_MINIMAL=1", "HAKMEM_EVO_POLICY=learn", "HAKMEM_POLICY=/tmp/x"), "");
    assert_string_equal(hak_options.evo_policy, "off");
    assert_string_equal(hak_options.policy, "");
    assert_int_equal(hak_options.disable_elo + hak_options.disable_bigcache + hak_options.disable_lifetimes, 3);
}

static void every_row_describes_its_field(void **state) {
    (void)state;
    assert_int_equal(hak_option_rows[HAK_O_stats].offset, offsetof(struct hak_options, stats));
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        if (row->when != HAK_OPTION_ANY)
            continue;
        char most[32], bytes[32];
        snprintf(most, sizeof(most), "%lu", (unsigned long)row->max);
        assert_int_equal(hak_option_set(row->name, most), 0);
        assert_int_equal(hak_option_get(row->name, bytes, sizeof(bytes)), strlen(most));
        assert_string_equal(bytes, most);
    }
}

int main(void) {
    defaults = hak_options;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_defaults_hold_before_anything_runs, before_each),
        cmocka_unit_test_setup(the_environment_sets_options_silently, before_each),
        cmocka_unit_test_setup(the_limits_themselves_are_accepted, before_each),
        cmocka_unit_test_setup(switches_take_words, before_each),
        cmocka_unit_test_setup(a_wrong_name_is_told_with_the_nearest, before_each),
        cmocka_unit_test_setup(a_wrong_value_is_told_and_the_default_stays, before_each),
        cmocka_unit_test_setup(each_mistake_is_one_line_however_wild, before_each),
        cmocka_unit_test_setup(a_text_that_is_too_long_is_not_cut_but_left_out, before_each),
        cmocka_unit_test_setup(of_two_the_first_counts_as_for_getenv, before_each),
        cmocka_unit_test_setup(setting_while_it_runs, before_each),
        cmocka_unit_test_setup(getting_writes_like_snprintf, before_each),
        cmocka_unit_test_setup(what_the_user_set_is_not_steered, before_each),
        cmocka_unit_test_setup(the_users_last_word_stands_beside_a_steering_thread, before_each),
        cmocka_unit_test_setup(minimal_turns_all_of_learning_off, before_each),
        cmocka_unit_test_setup(every_row_describes_its_field, before_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
