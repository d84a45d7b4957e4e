/* strategy.c - strategies set the knobs, but those that are the user's; where they then do not differ they do not play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "hakmem/hakmem.h"
#include "learn/strategy.h"
#include "rules/options.h"

#include <string.h>

static void the_baseline_is_the_defaults(void **state) {
    (void)state;
    for (unsigned option = 0; option < HAK_OPTION_COUNT; option++)
        if (hak_knob_is(option)) assert_int_equal(hak_strategy_value(0, option), hak_option_rows[option].default_);
    assert_true(hak_knob_is(HAK_O_purge_delay_ms));
    assert_false(hak_knob_is(HAK_O_stats));
    assert_string_equal(hak_strategy_at(0)->name, "baseline");
}

static void every_knob_is_in_its_options_range(void **state) {
    (void)state;
    for (unsigned i = 0; i < HAK_STRATEGY_SAVED; i++)
        for (const struct hak_knob *knob = hak_strategy_at(i)->knob; knob->option; knob++) {
            const struct hak_option_row *row = &hak_option_rows[knob->option];
            assert_true(row->when == HAK_OPTION_ANY && !row->is_text);
            assert_true(knob->value >= row->min && knob->value <= row->max);
            assert_true(knob->value != row->default_);
        }
}

static void about_twelve_play_and_the_controls_when_asked(void **state) {
    (void)state;
    unsigned count = 0;
    for (unsigned i = 0; i < HAK_STRATEGY_COUNT; i++) count += hak_strategy_plays(i);
    assert_true(count >= 10 && count <= 14);
    assert_false(hak_strategy_plays(HAK_STRATEGY_bad));
    assert_false(hak_strategy_plays(HAK_STRATEGY_SAVED));
    hak_options.learn_controls = 1;
    assert_true(hak_strategy_plays(HAK_STRATEGY_bad));
    assert_true(hak_strategy_plays(HAK_STRATEGY_twin));
    hak_options.learn_controls = 0;
}

static void applying_sets_all_knobs_and_the_baseline_takes_them_back(void **state) {
    (void)state;
    hak_strategy_apply(HAK_STRATEGY_hold_wide);
    assert_int_equal(HAK_OPT(word_bytes), 262144);
    assert_int_equal(HAK_OPT(purge_delay_ms), hak_strategy_value(HAK_STRATEGY_hold_wide, HAK_O_purge_delay_ms));
    hak_strategy_apply(HAK_STRATEGY_lean);
    assert_int_equal(HAK_OPT(word_bytes), hak_option_rows[HAK_O_word_bytes].default_);
    assert_int_equal(HAK_OPT(free_max_mb), 1);
    hak_strategy_apply(0);
    for (unsigned option = 0; option < HAK_OPTION_COUNT; option++)
        if (hak_knob_is(option))
            assert_int_equal(*(uint64_t *)(void *)((char *)&hak_options + hak_option_rows[option].offset),
                             hak_option_rows[option].default_);
}

static void memory_is_what_is_waited_for(void **state) {
    (void)state;
    assert_int_equal(hak_strategy_memory_ms(0, HAK_STRATEGY_wide_words), 0);
    assert_int_equal(hak_strategy_memory_ms(0, HAK_STRATEGY_twin), 0);
    assert_int_equal(hak_strategy_memory_ms(HAK_STRATEGY_hold, 0), 2 * hak_strategy_value(HAK_STRATEGY_hold, HAK_O_purge_delay_ms));
}

static void a_saved_setting_is_the_row_that_is_the_same_or_a_row_of_its_own(void **state) {
    (void)state;
    struct hak_knob wide[] = { { HAK_O_word_bytes, 262144 }, { HAK_O_relist_share, 8 } };
    assert_int_equal(hak_strategy_save("whatever", wide, 2), HAK_STRATEGY_wide_words);
    assert_int_equal(hak_strategy_save("nothing", NULL, 0), HAK_STRATEGY_baseline);
    struct hak_knob own[] = { { HAK_O_word_bytes, 40960 }, { HAK_O_free_max_mb, 12 } };
    assert_int_equal(hak_strategy_save("a_name_that_is_too_long", own, 2), HAK_STRATEGY_SAVED);
    assert_string_equal(hak_strategy_at(HAK_STRATEGY_SAVED)->name, "a_name_that_is_");
    assert_true(hak_strategy_plays(HAK_STRATEGY_SAVED));
    assert_int_equal(hak_strategy_value(HAK_STRATEGY_SAVED, HAK_O_word_bytes), 40960);
    assert_int_equal(hak_strategy_value(HAK_STRATEGY_SAVED, HAK_O_relist_share), 8);
    hak_strategy_save("nothing", NULL, 0);
}

/* Of a library whose defaults were others, or of a hand: a policy file has a row for each name, and is refused where one stands there twice. */
static void a_saved_setting_of_a_rows_name_has_another(void **state) {
    (void)state;
    struct hak_knob own[] = { { HAK_O_word_bytes, 40960 } };
    for (unsigned i = 0; i < HAK_STRATEGY_SAVED; i++) {
        assert_int_equal(hak_strategy_save(hak_strategy_at(i)->name, own, 1), HAK_STRATEGY_SAVED);
        assert_string_equal(hak_strategy_at(HAK_STRATEGY_SAVED)->name, "saved");
        assert_int_equal(hak_strategy_named("saved"), HAK_STRATEGY_SAVED);
    }
    hak_strategy_save("nothing", NULL, 0);
}

/* Last, for what the user has set stays his. */
static void what_the_user_decides_is_not_played_for(void **state) {
    (void)state;
    assert_int_equal(hak_option_set("word_bytes", "16384"), 0);
    hak_strategy_apply(HAK_STRATEGY_wide_words);
    assert_int_equal(HAK_OPT(word_bytes), 16384);
    assert_false(hak_strategy_plays(HAK_STRATEGY_wide_words));
    assert_false(hak_strategy_plays(HAK_STRATEGY_small_words));
    assert_false(hak_strategy_plays(HAK_STRATEGY_hold_wide)); /* is hold now */
    assert_true(hak_strategy_plays(HAK_STRATEGY_hold));
    assert_true(hak_strategy_plays(HAK_STRATEGY_late));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_baseline_is_the_defaults),
        cmocka_unit_test(every_knob_is_in_its_options_range),
        cmocka_unit_test(about_twelve_play_and_the_controls_when_asked),
        cmocka_unit_test(applying_sets_all_knobs_and_the_baseline_takes_them_back),
        cmocka_unit_test(memory_is_what_is_waited_for),
        cmocka_unit_test(a_saved_setting_is_the_row_that_is_the_same_or_a_row_of_its_own),
        cmocka_unit_test(a_saved_setting_of_a_rows_name_has_another),
        cmocka_unit_test(what_the_user_decides_is_not_played_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
