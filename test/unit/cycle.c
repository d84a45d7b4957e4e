/* cycle.c - the stages of learning, under simulated windows: what is frozen, what fails on trial, what wakes it up again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learn/cycle.h"
#include "learn/maths.h"

#include <math.h>
#include <string.h>

enum { STRATEGIES = 6 };

static uint64_t dice, now_ms;
static struct hak_cycle cycle;

struct world {
    double gain[STRATEGIES], time[STRATEGIES], dear[STRATEGIES], noise;
    double time_noise; /* 0: half of noise */
    double faults, visits;
    uint64_t resident[STRATEGIES], returned, retouched, threads;
};

static double normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(hak_dice(&dice) >> 11) * 0x1p-53;
    return sum;
}

static struct hak_measure measure(const struct world *world, unsigned strategy) {
    struct hak_measure m;
    memset(&m, 0, sizeof m);
    m.seconds = 0.05;
    m.visits = 3000;
    m.cost = 1 - world->gain[strategy] + world->noise * normal();
    m.time = 2 + world->time[strategy] + (world->time_noise > 0 ? world->time_noise : world->noise / 2) * normal();
    m.dear = 5 * exp(world->dear[strategy]);
    m.faults_each_s = world->faults * exp(0.1 * normal());
    m.visits_each_s = world->visits * exp(0.1 * normal());
    m.resident_bytes = world->resident[strategy] ? world->resident[strategy] : 100 << 20;
    m.returned_bytes = world->returned;
    m.retouched_bytes = world->retouched;
    m.thread_count = world->threads ? world->threads : 2;
    return m;
}

static void step(const struct world *world) {
    struct hak_measure m = measure(world, cycle.strategy);
    now_ms += cycle.stage == HAK_STAGE_FROZEN ? 1000 : 50;
    hak_cycle_window(&cycle, &m, 0, now_ms);
}

/* Until the stage is left; the reason of the change, or -1 after `most` windows. */
static int run(const struct world *world, unsigned most) {
    uint32_t before = cycle.changes;
    while (most-- > 0 && cycle.changes == before) step(world);
    return cycle.changes == before ? -1 : cycle.history[(cycle.changes - 1) % HAK_HISTORY_MAX].reason;
}

static void start(enum hak_evo_policy policy, uint64_t seed) {
    dice = seed;
    now_ms = 1000;
    hak_cycle_start(&cycle, policy, STRATEGIES, ~0u, 0, 1, seed, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    now_ms += 1000;
    hak_cycle_begin(&cycle, now_ms);
}

static const struct world good = { .gain = { 0, -0.05, 0.15, 0.02 }, .noise = 0.03, .faults = 100, .visits = 1000 };

static void learning_ends_frozen_on_the_winner(void **state) {
    (void)state;
    start(HAK_EVO_AUTO, 1);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    assert_int_equal(cycle.stage, HAK_STAGE_CANARY);
    assert_int_equal(run(&good, 100000), HAK_REASON_trial_passed);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_int_equal(cycle.strategy, 2);
    assert_true(now_ms > 600 * 1000); /* one phase of the load: ten minutes of trial */
    assert_int_equal(run(&good, 3000), -1); /* and it stays so */
}

static void two_phases_shorten_the_trial(void **state) {
    (void)state;
    start(HAK_EVO_AUTO, 2);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    uint64_t begin = now_ms;
    for (unsigned i = 0; cycle.stage == HAK_STAGE_CANARY && i < 2000; i++) {
        struct hak_measure m = measure(&good, cycle.strategy);
        if (i > 100) m.cost += 0.8; /* the load is another from here on */
        hak_cycle_window(&cycle, &m, 0, now_ms += 50);
    }
    assert_int_equal(cycle.strategy, 2);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_true(now_ms - begin < 60 * 1000);
}

static void nothing_to_gain_freezes_the_default(void **state) {
    (void)state;
    struct world flat = good;
    memset(flat.gain, 0, sizeof flat.gain);
    flat.gain[1] = -0.1;
    for (unsigned seed = 0; seed < 20; seed++) {
        start(HAK_EVO_AUTO, seed);
        assert_int_equal(run(&flat, 5000), HAK_REASON_nothing_gained);
        assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
        assert_int_equal(cycle.strategy, 0);
    }
}

static int reason_on_trial(struct world world, uint64_t seed) {
    start(HAK_EVO_AUTO, seed);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    return run(&world, 100000);
}

static void a_trial_fails_for_each_of_its_reasons(void **state) {
    (void)state;
    struct world slow = good, gone = good, tail = good, large = good;
    slow.time[2] = 0.03;
    gone.gain[2] = 0.04;
    tail.dear[2] = 0.3;
    large.resident[2] = 103 << 20;
    assert_int_equal(reason_on_trial(slow, 5), HAK_REASON_trial_time);
    assert_int_equal(reason_on_trial(gone, 6), HAK_REASON_trial_cost);
    assert_int_equal(reason_on_trial(tail, 7), HAK_REASON_trial_tail);
    assert_int_equal(reason_on_trial(large, 8), HAK_REASON_trial_memory);
    /* the field goes on without it, and finds nothing that is worth it */
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    assert_int_equal(cycle.tournament.rival[2].state, HAK_RIVAL_SPENT);
}

static void what_failed_on_trial_does_not_come_back_at_once(void **state) {
    (void)state;
    struct world slow = good;
    slow.time[2] = 0.05;
    slow.gain[3] = 0;
    start(HAK_EVO_AUTO, 9);
    for (unsigned i = 0; i < 60000 && !(cycle.stage == HAK_STAGE_FROZEN && cycle.changes > 2); i++) step(&slow);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_int_equal(cycle.strategy, 0);
}

static void freeze_two(uint64_t seed) {
    start(HAK_EVO_AUTO, seed);
    for (unsigned i = 0; i < 100000 && !(cycle.stage == HAK_STAGE_FROZEN && cycle.changes > 2); i++) step(&good);
    assert_int_equal(cycle.strategy, 2);
    for (unsigned i = 0; i < 120; i++) step(&good); /* long enough to have learnt what is usual */
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
}

static void each_signal_ends_frozen(void **state) {
    (void)state;
    struct world faults = good, visits = good, returns = good, threads = good;
    faults.faults *= 10;
    visits.visits /= 10;
    returns.returned = 64 << 20, returns.retouched = 20 << 20;
    threads.threads = 4;
    freeze_two(11);
    assert_int_equal(run(&faults, 100), HAK_REASON_load_changed);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    freeze_two(12);
    assert_int_equal(run(&visits, 100), HAK_REASON_load_changed);
    freeze_two(13);
    assert_int_equal(run(&returns, 100), HAK_REASON_touched_again);
    freeze_two(14);
    assert_int_equal(run(&threads, 100), HAK_REASON_threads_doubled);
    freeze_two(15);
    hak_cycle_wake(&cycle, HAK_REASON_new_sites, 300, 1000, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    freeze_two(16);
    hak_cycle_limit(&cycle, (uint64_t)1 << 30, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    hak_cycle_limit(&cycle, (uint64_t)1 << 29, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    assert_int_equal(cycle.history[(cycle.changes - 1) % HAK_HISTORY_MAX].number[0], 1024);
}

static void growth_for_new_sites_ends_frozen(void **state) {
    (void)state;
    freeze_two(26);
    for (unsigned i = 0; i < 6; i++) assert_true(hak_cycle_sites(&cycle, 2 << 20, 16 << 20, now_ms += 1000)); /* an eighth */
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    for (unsigned i = 0; i < 3; i++) assert_true(hak_cycle_sites(&cycle, 8 << 20, 15 << 20, now_ms += 1000));
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN); /* 28 of 77 MiB, the last two of those before with them */
    assert_int_equal(cycle.history[(cycle.changes - 1) % HAK_HISTORY_MAX].reason, HAK_REASON_new_sites);
    assert_false(hak_cycle_sites(&cycle, 1, 1, now_ms)); /* LEARN: all are usual from now on */
}

static void the_first_growth_is_no_alarm(void **state) {
    (void)state;
    start(HAK_EVO_AUTO, 27);
    for (unsigned i = 0; i < 100000 && !(cycle.stage == HAK_STAGE_FROZEN && cycle.changes > 2); i++) step(&good);
    for (unsigned i = 0; i < 20; i++) {
        step(&good);
        assert_false(hak_cycle_sites(&cycle, 100 << 20, 100 << 20, now_ms)); /* usual is what comes now */
    }
    step(&good);
    assert_true(hak_cycle_sites(&cycle, 60 << 20, 60 << 20, now_ms)); /* too little to tell */
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_false(hak_cycle_sites(&cycle, 10 << 20, 10 << 20, now_ms)); /* told, but frozen for 21 seconds only: usual, too */
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
}

static void memory_per_live_byte_ends_frozen_after_three_looks(void **state) {
    (void)state;
    freeze_two(17);
    struct hak_measure m = measure(&good, 2);
    hak_cycle_window(&cycle, &m, 80 << 20, now_ms += 1000);
    for (unsigned i = 0; i < 2; i++) hak_cycle_window(&cycle, &m, 50 << 20, now_ms += 1000);
    hak_cycle_window(&cycle, &m, 80 << 20, now_ms += 1000); /* not in a row */
    for (unsigned i = 0; i < 2; i++) hak_cycle_window(&cycle, &m, 50 << 20, now_ms += 1000);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    hak_cycle_window(&cycle, &m, 50 << 20, now_ms += 1000);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
}

static void a_program_that_holds_nothing_for_a_moment_has_not_grown(void **state) {
    (void)state;
    struct world small = good;
    small.resident[2] = 2 << 20;
    freeze_two(25);
    struct hak_measure m = measure(&small, 2);
    hak_cycle_window(&cycle, &m, 1 << 20, now_ms += 1000);
    for (unsigned i = 0; i < 5; i++) hak_cycle_window(&cycle, &m, 4096, now_ms += 1000);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
}

static void an_ordinary_day_does_not_wake_it(void **state) {
    (void)state;
    freeze_two(18);
    assert_int_equal(run(&good, 24 * 3600), -1); /* a day of seconds, rates moving by a tenth */
}

static void back_off_doubles_while_nothing_else_is_found(void **state) {
    (void)state;
    struct world flat = good;
    memset(flat.gain, 0, sizeof flat.gain);
    start(HAK_EVO_AUTO, 19);
    uint64_t stay = 0;
    for (unsigned round = 0; round < 8; round++) {
        while (cycle.stage != HAK_STAGE_FROZEN) step(&flat);
        if (round) assert_int_equal(cycle.stay_ms, 2 * stay > 3600000 ? 3600000 : 2 * stay);
        stay = cycle.stay_ms;
        hak_cycle_wake(&cycle, HAK_REASON_new_sites, 0, 0, now_ms += 100); /* too soon */
        assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
        hak_cycle_wake(&cycle, HAK_REASON_new_sites, 0, 0, now_ms += stay);
        assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    }
}

static void fixed_stages_stay(void **state) {
    (void)state;
    start(HAK_EVO_FROZEN, 20);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    for (unsigned i = 0; i < 1000; i++) step(&good);
    hak_cycle_wake(&cycle, HAK_REASON_new_sites, 0, 0, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_int_equal(cycle.strategy, 0);

    start(HAK_EVO_LEARN, 21);
    for (unsigned i = 0; i < 5000; i++) {
        step(&good);
        assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    }
    assert_true(cycle.changes > 3);

    start(HAK_EVO_CANARY, 22); /* nothing to try yet: it learns first */
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    for (unsigned i = 0; i < 50000; i++) {
        step(&good);
        assert_int_equal(cycle.stage, HAK_STAGE_CANARY);
    }
}

static void a_policy_that_was_read_starts_frozen(void **state) {
    (void)state;
    now_ms = 50;
    hak_cycle_start(&cycle, HAK_EVO_AUTO, STRATEGIES, ~0u, 0, 1, 1, now_ms);
    hak_cycle_resume(&cycle, 3, HAK_STAGE_FROZEN, 0.05, 0.004, 60, 2, now_ms);
    assert_int_equal(cycle.strategy, 3);
    hak_cycle_begin(&cycle, now_ms += 1000);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_int_equal(cycle.strategy, 3);
    assert_int_equal(cycle.history[1].reason, HAK_REASON_policy_read);
}

static void a_trial_goes_on_in_the_next_run(void **state) {
    (void)state;
    now_ms = 50;
    dice = 24;
    hak_cycle_start(&cycle, HAK_EVO_AUTO, STRATEGIES, ~0u, 0, 1, 1, now_ms);
    hak_cycle_resume(&cycle, 2, HAK_STAGE_CANARY, 0.14, 0.01, 30, 1, now_ms);
    assert_int_equal(cycle.stage, HAK_STAGE_FROZEN);
    assert_int_equal(cycle.strategy, 0);
    hak_cycle_begin(&cycle, now_ms += 1000);
    assert_int_equal(cycle.stage, HAK_STAGE_CANARY);
    assert_int_equal(run(&good, 200), HAK_REASON_trial_passed); /* another run is another phase */
    assert_int_equal(cycle.strategy, 2);
}

/* What loses by a factor is seen on trial as what loses by a tenth; a load that jumps within a duel is not. */
static void a_trial_sees_what_loses_or_wins_by_far(void **state) {
    (void)state;
    struct world dear = good, cheap = good;
    dear.gain[2] = -1.3;
    cheap.gain[2] = 1.6;
    start(HAK_EVO_AUTO, 31);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    assert_int_equal(run(&dear, 200), HAK_REASON_trial_cost);
    start(HAK_EVO_AUTO, 32);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    assert_int_equal(run(&cheap, 100000), HAK_REASON_trial_passed);
    start(HAK_EVO_AUTO, 33);
    assert_int_equal(run(&good, 2000), HAK_REASON_gain_proved);
    double gain = 0;
    for (unsigned i = 0; i < 400; i++) { /* each 37 windows the load is another by a factor */
        struct world jumps = good;
        for (unsigned s = 0; s < STRATEGIES; s++) jumps.gain[s] += i / 37 % 2 ? 3 : 0;
        if (cycle.stage == HAK_STAGE_CANARY) gain = cycle.trial.gain.mean;
        step(&jumps);
    }
    assert_true(gain > 0.05 && gain < 0.3);
}

/* The champion against itself, four times: chance alone is no reason. */
static void a_good_one_is_seldom_refused_for_noise(void **state) {
    (void)state;
    unsigned refused = 0;
    for (unsigned seed = 100; seed < 500; seed++) {
        now_ms = 50;
        dice = seed;
        hak_cycle_start(&cycle, HAK_EVO_AUTO, STRATEGIES, ~0u, 0, 1, seed, now_ms);
        hak_cycle_resume(&cycle, 2, HAK_STAGE_CANARY, 0.14, 0.01, 30, 1, now_ms);
        hak_cycle_begin(&cycle, now_ms += 1000);
        refused += run(&good, 400) == HAK_REASON_trial_noise;
    }
    assert_true(refused <= 12); /* of 400 */
}

static unsigned passed_of_200(const struct world *world, unsigned seeds) {
    unsigned passed = 0;
    for (unsigned seed = seeds; seed < seeds + 200; seed++) {
        now_ms = 50;
        dice = seed;
        hak_cycle_start(&cycle, HAK_EVO_AUTO, STRATEGIES, ~0u, 0, 1, seed, now_ms);
        hak_cycle_resume(&cycle, 2, HAK_STAGE_CANARY, 0.14, 0.01, 30, 1, now_ms);
        hak_cycle_begin(&cycle, now_ms += 1000);
        passed += run(world, 2000) == HAK_REASON_trial_passed;
    }
    return passed;
}

/* 16 duels that vary by a fifth do not tell 5% more time from none: of these 93, 169 and 161 of 200 passed. */
static void what_takes_more_time_is_refused_though_duels_vary(void **state) {
    (void)state;
    struct world slow = good, neutral = good, wild = good;
    slow.time_noise = neutral.time_noise = 0.2;
    slow.time[2] = 0.05;
    wild.time_noise = 1;
    unsigned slow_passed = passed_of_200(&slow, 1000), neutral_passed = passed_of_200(&neutral, 2000), wild_passed = passed_of_200(&wild, 3000);
    if (slow_passed > 24 || neutral_passed < 140 || wild_passed > 40) fail_msg("passed %u, %u, %u", slow_passed, neutral_passed, wild_passed);
}

/* A program that is idle, or forks each second: duels never end, and what is in force meanwhile is the usual choice. */
static void duels_that_are_spoilt_leave_the_usual_choice_in_force(void **state) {
    (void)state;
    start(HAK_EVO_AUTO, 34);
    unsigned others = 0, drawn = 0;
    for (unsigned i = 0; i < 1000; i++) {
        unsigned before = cycle.tournament.pair[0] * 16u + cycle.tournament.pair[1];
        others += cycle.strategy != 0;
        hak_cycle_spoilt(&cycle);
        drawn += before != cycle.tournament.pair[0] * 16u + cycle.tournament.pair[1];
    }
    assert_true(others <= 2 && drawn > 500);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    assert_int_equal(run(&good, 3000), HAK_REASON_gain_proved); /* the load is there after all */
    for (unsigned i = 0; i < 100; i++) hak_cycle_spoilt(&cycle);
    assert_int_equal(cycle.strategy, 0);
    others = 0;
    for (unsigned i = 0; i < 4000; i++) { /* one window between two forks */
        step(&good);
        others += cycle.strategy != 0;
        hak_cycle_spoilt(&cycle);
    }
    assert_true(others < 100);
    assert_int_equal(run(&good, 100000), HAK_REASON_trial_passed);
}

/* What files froze is looked at again now and then, and only its verdict counts. */
static void a_policy_of_many_runs_goes_on_trial_again(void **state) {
    (void)state;
    for (unsigned is_better = 0; is_better < 2; is_better++) {
        now_ms = 50;
        dice = 35 + is_better;
        hak_cycle_start(&cycle, HAK_EVO_AUTO, STRATEGIES, ~0u, 0, 1, 1, now_ms);
        hak_cycle_resume(&cycle, 2, HAK_STAGE_FROZEN, 0.14, 0.01, 30, 15, now_ms);
        assert_true(cycle.is_check && cycle.strategy == 0);
        hak_cycle_begin(&cycle, now_ms += 1000);
        assert_int_equal(cycle.stage, HAK_STAGE_CANARY);
        struct world other = good;
        other.gain[2] = -0.1;
        assert_int_equal(run(is_better ? &good : &other, 300), is_better ? HAK_REASON_trial_passed : HAK_REASON_trial_cost);
        assert_int_equal(cycle.strategy, is_better ? 2 : 0);
        assert_true(is_better || cycle.claimed_duels == 0);
    }
}

static void a_noisy_period_gets_longer_windows(void **state) {
    (void)state;
    struct world noisy = good;
    noisy.noise = 0.6;
    start(HAK_EVO_AUTO, 23);
    for (unsigned i = 0; i < 200; i++) step(&noisy);
    assert_true(cycle.window_times >= 4);
    assert_int_equal(cycle.stage, HAK_STAGE_LEARN);
    assert_int_equal(run(&good, 3000), HAK_REASON_gain_proved); /* longer windows see less of it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_ends_frozen_on_the_winner),
        cmocka_unit_test(two_phases_shorten_the_trial),
        cmocka_unit_test(nothing_to_gain_freezes_the_default),
        cmocka_unit_test(a_trial_fails_for_each_of_its_reasons),
        cmocka_unit_test(what_failed_on_trial_does_not_come_back_at_once),
        cmocka_unit_test(each_signal_ends_frozen),
        cmocka_unit_test(growth_for_new_sites_ends_frozen),
        cmocka_unit_test(the_first_growth_is_no_alarm),
        cmocka_unit_test(memory_per_live_byte_ends_frozen_after_three_looks),
        cmocka_unit_test(a_program_that_holds_nothing_for_a_moment_has_not_grown),
        cmocka_unit_test(an_ordinary_day_does_not_wake_it),
        cmocka_unit_test(back_off_doubles_while_nothing_else_is_found),
        cmocka_unit_test(fixed_stages_stay),
        cmocka_unit_test(a_policy_that_was_read_starts_frozen),
        cmocka_unit_test(a_trial_goes_on_in_the_next_run),
        cmocka_unit_test(a_trial_sees_what_loses_or_wins_by_far),
        cmocka_unit_test(a_good_one_is_seldom_refused_for_noise),
        cmocka_unit_test(what_takes_more_time_is_refused_though_duels_vary),
        cmocka_unit_test(duels_that_are_spoilt_leave_the_usual_choice_in_force),
        cmocka_unit_test(a_policy_of_many_runs_goes_on_trial_again),
        cmocka_unit_test(a_noisy_period_gets_longer_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
