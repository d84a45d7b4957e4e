/* tournament.c - duels under simulated loads: the cheapest strategy is found, and nothing is claimed that is not there.
 *
 * The load drifts (0.5% a window), jumps at phases of 20 to 80 windows (to half or twice the cost), and a window's cost
 * has 6% of noise. Seeds are fixed, so a failure comes again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learn/maths.h"
#include "learn/tournament.h"

#include <math.h>
#include <stdio.h>

enum { WINDOWS_MAX = 3000 };

struct load {
    double gain[HAK_RIVALS_MAX], mood[HAK_RIVALS_MAX]; /* what a phase adds to a strategy's gain */
    double level, noise, mood_size, wild;
    unsigned count, left;
    uint64_t dice;
};

static double even(uint64_t *dice) { return (double)(hak_dice(dice) >> 11) * 0x1p-53; }
static double normal(uint64_t *dice) {
    return sqrt(-2 * log(even(dice) + 1e-300)) * cos(6.283185307179586 * even(dice));
}

static double load_window(struct load *load, unsigned strategy) {
    if (load->left-- == 0) {
        load->left = 20 + (unsigned)(60 * even(&load->dice));
        load->level += 0.7 * (2 * even(&load->dice) - 1);
        for (unsigned i = 0; i < load->count; i++) load->mood[i] = load->mood_size * normal(&load->dice);
    }
    load->level += 0.005 * normal(&load->dice);
    double noise = load->noise * normal(&load->dice);
    if (load->wild > 0 && even(&load->dice) < load->wild) noise *= 4;
    return load->level - load->gain[strategy] - load->mood[strategy] + noise;
}

static void run(struct hak_tournament *t, struct load *load, unsigned windows) {
    while (t->stage != HAK_TOURNAMENT_OVER && windows-- > 0)
        hak_tournament_window(t, load_window(load, hak_tournament_now(t)));
}

static unsigned leads(const struct hak_tournament *t) {
    unsigned best = 0;
    if (t->stage == HAK_TOURNAMENT_OVER) return t->winner;
    for (unsigned i = 1; i < t->count; i++)
        if (t->rival[i].state < HAK_RIVAL_SPENT && t->rival[i].gain > t->rival[best].gain) best = i;
    return best;
}

/* 8 to 12 strategies, one the best by `lead`, most of them worse than the default; asked after 450 windows. */
static double found_share(double lead, double noise, double mood, double *worse, double *mean_windows) {
    enum { TRIALS = 300 };
    unsigned found = 0, frozen_worse = 0;
    double windows = 0;
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        struct load load = { .noise = noise, .mood_size = mood, .dice = 1000 + trial, .count = 8 + trial % 5 };
        unsigned best = 1 + (unsigned)(even(&load.dice) * (load.count - 1));
        load.gain[best] = 0.05 + 0.05 * even(&load.dice);
        for (unsigned i = 1; i < load.count; i++)
            if (i != best) load.gain[i] = -0.12 + (load.gain[best] - lead + 0.12) * even(&load.dice);
        struct hak_tournament t;
        hak_tournament_start(&t, load.count, trial * 77 + 1);
        run(&t, &load, 450);
        found += leads(&t) == best;
        run(&t, &load, WINDOWS_MAX);
        frozen_worse += t.winner != 0 && load.gain[t.winner] <= 0;
        windows += t.windows;
    }
    *worse = (double)frozen_worse / TRIALS;
    *mean_windows = windows / TRIALS;
    print_message("lead %.0f%%, noise %.0f%%, mood %.0f%%: the best leads after 450 windows in %.1f%% of %d trials, worse than "
                  "the default frozen in %.2f%%, over after %.0f windows\n", lead * 100, noise * 100, mood * 100,
                  100.0 * found / TRIALS, TRIALS, *worse * 100, *mean_windows);
    return (double)found / TRIALS;
}

static void the_best_is_found_and_a_worse_one_never_frozen(void **state) {
    (void)state;
    static const struct { double lead, noise, mood, least; } rows[] = {
        { 0.04, 0.06, 0, 0.97 }, { 0.02, 0.06, 0, 0.94 }, { 0.01, 0.06, 0, 0.90 },
        { 0.03, 0.06, 0.01, 0.94 }, { 0.03, 0.02, 0, 0.98 }, { 0.03, 0.12, 0, 0.88 },
    };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double worse, windows;
        double found = found_share(rows[i].lead, rows[i].noise, rows[i].mood, &worse, &windows);
        assert_true(found >= rows[i].least);
        assert_true(worse == 0);
    }
}

static void one_that_is_known_to_be_bad_is_out_within_500_windows(void **state) {
    (void)state;
    enum { TRIALS = 400 };
    unsigned late = 0;
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        struct load load = { .noise = 0.06, .dice = 9000 + trial, .count = 8 + trial % 5 };
        unsigned bad = load.count - 1;
        for (unsigned i = 1; i < bad; i++) load.gain[i] = -0.04 + 0.08 * even(&load.dice);
        load.gain[bad] = -0.3;
        struct hak_tournament t;
        hak_tournament_start(&t, load.count, trial);
        t.rival[bad].is_control = 1;
        run(&t, &load, 500);
        late += t.rival[bad].state != HAK_RIVAL_OUT;
    }
    print_message("a strategy 30%% dearer: not out after 500 windows in %u of %d trials\n", late, TRIALS);
    assert_true(late * 100 <= TRIALS);
}

/* What is declared at all is wrong here. With 0.001 for each claim, about ten of 3,000 trials may make one. */
static void equal_ones_are_not_declared_different(void **state) {
    (void)state;
    enum { TRIALS = 1000 };
    static const unsigned counts[] = { 2, 4, 12 };
    for (unsigned k = 0; k < 3; k++) {
        unsigned better = 0, worse = 0;
        for (unsigned trial = 0; trial < TRIALS; trial++) {
            struct load load = { .noise = k == 1 ? 0.02 : 0.06, .wild = trial % 2 ? 0.05 : 0, .dice = trial, .count = counts[k] };
            struct hak_tournament t;
            hak_tournament_start(&t, counts[k], trial + 5);
            run(&t, &load, WINDOWS_MAX);
            better += t.winner != 0;
            unsigned out = 0;
            for (unsigned i = 1; i < t.count; i++) out += t.rival[i].state == HAK_RIVAL_OUT;
            worse += out > 0;
        }
        print_message("%u equal ones: one declared better in %u, one declared worse in %u of %d trials\n", counts[k], better,
                      worse, TRIALS);
        assert_true(better <= 2);
        assert_true(worse <= 5);
    }
}

static void a_control_never_wins(void **state) {
    (void)state;
    struct load load = { .noise = 0.03, .dice = 3, .count = 4, .gain = { 0, -0.02, 0.3, -0.05 } };
    struct hak_tournament t;
    hak_tournament_start(&t, 4, 11);
    t.rival[2].is_control = 1;
    run(&t, &load, WINDOWS_MAX);
    assert_int_equal(t.stage, HAK_TOURNAMENT_OVER);
    assert_int_not_equal(t.winner, 2);
}

static void a_barred_one_never_plays(void **state) {
    (void)state;
    struct load load = { .noise = 0.03, .dice = 4, .count = 6, .gain = { 0, 0.02, 0.3, 0.08, -0.05, 0.01 } };
    struct hak_tournament t;
    hak_tournament_start(&t, 6, 12);
    t.rival[2].state = HAK_RIVAL_BARRED;
    hak_tournament_again(&t);
    for (unsigned i = 0; i < WINDOWS_MAX && t.stage != HAK_TOURNAMENT_OVER; i++) {
        unsigned now = hak_tournament_now(&t);
        assert_int_not_equal(now, 2);
        hak_tournament_window(&t, load_window(&load, now));
    }
    assert_int_equal(t.winner, 3);
    assert_int_equal(t.rival[2].duels, 0);
}

static void steady_growth_and_jumps_cancel(void **state) {
    (void)state;
    struct hak_tournament t;
    hak_tournament_start(&t, 2, 1);
    double level = 0;
    for (unsigned window = 0; window < 80; window++) { /* 3% dearer with each window, and no difference at all */
        hak_tournament_window(&t, level += 0.03);
        if (window == 40) level += 3; /* within a duel */
        if (t.stage == HAK_TOURNAMENT_OVER) break;
    }
    assert_true(hak_abs(t.rival[1].gain) < 1e-9);
    assert_int_equal(t.void_duels, 1);
}

static void a_spoilt_window_begins_the_duel_anew(void **state) {
    (void)state;
    struct hak_tournament t;
    hak_tournament_start(&t, 2, 1);
    unsigned first = hak_tournament_now(&t);
    hak_tournament_window(&t, 5);
    assert_int_not_equal(hak_tournament_now(&t), first);
    hak_tournament_pair(&t); /* drawn anew: what was measured of the one before does not count */
    for (unsigned i = 0; i < 4; i++) assert_int_equal(hak_tournament_window(&t, 1), i == 3);
    assert_int_equal(t.duels, 1);
    assert_true(t.rival[1].gain == 0);
}

static void after_a_second_start_another_can_win(void **state) {
    (void)state;
    struct load load = { .noise = 0.03, .dice = 4, .count = 5, .gain = { 0, 0.08, -0.1, -0.02, -0.05 } };
    struct hak_tournament t;
    hak_tournament_start(&t, 5, 12);
    run(&t, &load, WINDOWS_MAX);
    assert_int_equal(t.winner, 1);
    load.gain[1] = -0.08;
    load.gain[2] = 0.1;
    hak_tournament_again(&t);
    run(&t, &load, WINDOWS_MAX);
    assert_int_equal(t.winner, 2);
}

static void elo_is_the_odds_to_win_a_duel(void **state) {
    (void)state;
    struct hak_tournament t;
    hak_tournament_start(&t, 3, 1);
    t.noise = 0.05;
    t.rival[1].gain = 0.05;
    t.rival[1].error = 0.005;
    t.rival[2].gain = -2;
    double p = 0.5 * erfc(-1 / sqrt(2));
    struct hak_elo elo = hak_tournament_elo(&t, 1);
    assert_true(fabs(elo.rating - 400 * log10(p / (1 - p))) < 10);
    assert_int_equal(elo.error, 30);
    assert_int_equal(hak_tournament_elo(&t, 0).rating, 0);
    assert_int_equal(hak_tournament_elo(&t, 2).rating, -9999);
}

static void the_logarithm_is_one(void **state) {
    (void)state;
    uint64_t dice = 1;
    for (unsigned i = 0; i < 100000; i++) {
        double x = exp(60 * (even(&dice) - 0.5));
        assert_true(fabs(hak_ln(x) - log(x)) <= 1e-12 * (1 + fabs(log(x))));
    }
    assert_true(hak_ln(1) == 0);
    assert_true(fabs(hak_ln(1e300) - log(1e300)) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_found_and_a_worse_one_never_frozen),
        cmocka_unit_test(one_that_is_known_to_be_bad_is_out_within_500_windows),
        cmocka_unit_test(equal_ones_are_not_declared_different),
        cmocka_unit_test(a_control_never_wins),
        cmocka_unit_test(a_barred_one_never_plays),
        cmocka_unit_test(steady_growth_and_jumps_cancel),
        cmocka_unit_test(a_spoilt_window_begins_the_duel_anew),
        cmocka_unit_test(after_a_second_start_another_can_win),
        cmocka_unit_test(elo_is_the_odds_to_win_a_duel),
        cmocka_unit_test(the_logarithm_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
