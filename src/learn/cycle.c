/* cycle.c - see cycle.h. Waiting times are divided by `hurry` (option learn_hurry). */
#include "learn/cycle.h"

#include "learn/maths.h"

#include <string.h>

enum {
    STAY_MS = 60 * 1000,           /* FROZEN lasts at least so long; doubled where learning found nothing else */
    STAY_MS_MAX = 3600 * 1000,
    TRIAL_MS = 600 * 1000,         /* or two phases of the load */
    TRIAL_DUELS = 16, TRIAL_DUELS_MOST = 192, LOOK_DUELS = 32, TRIAL_TWINS = 4, TWIN_EACH = 4, /* every fourth duel is the champion against itself */
    LOOKS_LEARNT = 20,             /* of FROZEN, before a change can be told */
    SITES_BYTES = 64 << 20,        /* of growth, before its sites are judged */
    LIVE_BYTES = 8 << 20,          /* a program that holds next to nothing for a moment has not grown */
};

/* A trial passes when these hold at its end. */
#define TIME_MAX   0.01
#define TAIL_MAX   0.05
#define MEMORY_MAX 1.02
#define TWIN_MAX   0.005
#define TIME_ERROR_MAX 0.02 /* else it goes on: of those that take 5% more time, in duels that vary by a fifth, more than half passed */
#define DEAR_FORGIVEN 1.0 /* dear visits per MiB: below, they are not the 99th percentile of 43 to 1,000 visits */

/* A program with a period of its own (bursts, collections, requests) looks noisy to windows that are shorter. */
#define NOISE_MAX    0.15
#define NOISE_WANTED 0.08
enum { NOISE_DUELS = 6, WINDOW_TIMES_MAX = 64 };

/* Duels that cannot be brought to their end are no reason to have anything but the usual choice in force: after so many in a row it is, for
 * 2, 4, 8 .. windows. */
enum { SPOILT_FEW = 1, SPOILT_MAX = 8 };

enum { CHECK_RUNS = 16 }; /* each such run puts what files froze long ago on trial again: the load may be another */

/* CUSUM (Page 1954) in standard deviations: drift forgiven, and alarm. Means are over 1,000 looks between false alarms at 5; a
 * program's seconds are not independent, hence 10. */
#define CUSUM_FORGIVEN 0.75
#define CUSUM_ALARM    10
#define SPREAD_LEAST   0.25 /* a quarter more or less is no change of load */

static const char reason_names[HAK_REASON_COUNT][24] = {
#define HAK_REASON(name, numbers, words) #name,
#include "learn/reasons.def"
#undef HAK_REASON
};
const char *hak_reason_name(enum hak_reason reason) { return reason_names[reason < HAK_REASON_COUNT ? reason : 0]; }

static int64_t millionths(double x) { return (int64_t)(x * 1e6 + (x < 0 ? -0.5 : 0.5)); }

void hak_mean_add(struct hak_mean *mean, double x) {
    double before = x - mean->mean;
    mean->n += 1;
    mean->mean += before / mean->n;
    mean->squares += before * (x - mean->mean);
}

double hak_mean_error(const struct hak_mean *mean) {
    return mean->n < 2 ? 1 : hak_sqrt(mean->squares / (mean->n - 1) / mean->n);
}

static double spread(const struct hak_mean *mean) {
    double s = mean->n < 2 ? 0 : hak_sqrt(mean->squares / (mean->n - 1));
    return s > SPREAD_LEAST ? s : SPREAD_LEAST;
}

/* --- stages --- */

static void change(struct hak_cycle *cycle, enum hak_stage to, enum hak_reason reason, int64_t one, int64_t two, uint64_t now) {
    struct hak_stage_change *row = &cycle->history[cycle->changes++ % HAK_HISTORY_MAX];
    row->ms = now - cycle->start_ms;
    row->from = cycle->stage;
    row->to = (uint8_t)to;
    row->reason = (uint8_t)reason;
    row->number[0] = one;
    row->number[1] = two;
    cycle->stage = (uint8_t)to;
    row->strategy = cycle->strategy;
}

static void freeze(struct hak_cycle *cycle, unsigned strategy, enum hak_reason reason, int64_t one, int64_t two, uint64_t now) {
    bool again = cycle->stay_ms && strategy == cycle->chosen;
    cycle->stay_ms = again ? 2 * cycle->stay_ms : STAY_MS / cycle->hurry;
    if (cycle->stay_ms > STAY_MS_MAX) cycle->stay_ms = STAY_MS_MAX;
    cycle->chosen = cycle->strategy = (uint8_t)strategy;
    if (strategy == 0) cycle->claimed = cycle->claimed_error = 0, cycle->claimed_duels = 0; /* those were another's */
    cycle->frozen_ms = now;
    memset(&cycle->watched, 0, sizeof cycle->watched);
    cycle->rest = cycle->spoilt = 0;
    change(cycle, HAK_STAGE_FROZEN, reason, one, two, now);
}

static void learn(struct hak_cycle *cycle, enum hak_reason reason, int64_t one, int64_t two, uint64_t now) {
    if (cycle->tournament.windows || cycle->tournament.duels) hak_tournament_again(&cycle->tournament);
    cycle->strategy = (uint8_t)hak_tournament_now(&cycle->tournament);
    cycle->rest = 0;
    change(cycle, HAK_STAGE_LEARN, reason, one, two, now);
}

static void trial_pair(struct hak_trial *trial) {
    trial->is_twin = trial->duels % TWIN_EACH == TWIN_EACH - 1;
    trial->order = (uint8_t)(hak_dice(&trial->dice) >> 63);
    trial->step = 0;
}

/* The default is row 0, the champion row 1; in a twin duel both are the champion. */
static bool trial_is_champion(const struct hak_trial *trial) {
    bool inner = trial->step == 1 || trial->step == 2;
    return trial->is_twin || inner == trial->order;
}

static void trial_begin(struct hak_cycle *cycle, unsigned champion, uint64_t now) {
    struct hak_trial *trial = &cycle->trial;
    uint64_t dice = cycle->tournament.dice;
    memset(trial, 0, sizeof *trial);
    trial->champion = champion;
    trial->dice = dice + 1;
    trial->begin_ms = now;
    trial_pair(trial);
    cycle->strategy = (uint8_t)(trial_is_champion(trial) ? champion : 0);
}

/* --- CANARY --- */

/* The load is in another phase: three windows of the default in a row cost a third more or less than they used to. */
static void trial_level(struct hak_trial *trial, double cost) {
    if (trial->level == 0) trial->level = cost, trial->phases++;
    double off = hak_abs(cost - trial->level);
    trial->level_off = off > 0.3 ? trial->level_off + 1 : 0;
    if (trial->level_off >= 3) {
        trial->level = cost;
        trial->level_off = 0;
        trial->phases++;
    } else if (off <= 0.3) {
        trial->level += (cost - trial->level) / 16;
    }
}

static double duel_score(const double cost[4], unsigned order) { /* the inner pair less the outer */
    double score = (cost[1] + cost[2] - cost[0] - cost[3]) / 2;
    return order ? -score : score;
}

static double duel_apart(const double cost[4]) { return hak_abs(cost[1] - cost[0] - cost[2] + cost[3]) / 2; } /* its halves */

static bool trial_window(struct hak_trial *trial, const struct hak_measure *window) {
    unsigned who = trial_is_champion(trial);
    if (!trial->is_twin) {
        if (window->resident_bytes > trial->peak[who]) trial->peak[who] = window->resident_bytes;
        if (!who) trial_level(trial, window->cost);
    }
    trial->cost[trial->step] = window->cost;
    trial->time[trial->step] = window->time;
    trial->dear[trial->step] = hak_ln(window->dear + DEAR_FORGIVEN);
    if (++trial->step < 4) return false;
    /* order 0: the default inside, the champion outside, so that inner less outer is the champion's gain */
    double gain = duel_score(trial->cost, trial->order);
    if (trial->is_twin) {
        hak_mean_add(&trial->twin, gain);
    } else if (hak_abs(gain) < 1 || duel_apart(trial->cost) < hak_abs(gain) / 4) { /* else the load jumped within the duel */
        hak_mean_add(&trial->gain, gain > 1 ? 1 : gain < -1 ? -1 : gain);
        hak_mean_add(&trial->time_change, -duel_score(trial->time, trial->order));
        hak_mean_add(&trial->dear_change, -duel_score(trial->dear, trial->order));
    }
    trial->duels++;
    trial_pair(trial);
    return true;
}

static void trial_failed(struct hak_cycle *cycle, enum hak_reason reason, int64_t one, int64_t two, uint64_t now) {
    struct hak_tournament *t = &cycle->tournament;
    unsigned champion = cycle->trial.champion;
    if (cycle->policy == HAK_EVO_CANARY) { /* on trial for good */
        change(cycle, HAK_STAGE_CANARY, reason, one, two, now);
        trial_begin(cycle, champion, now);
        return;
    }
    bool another = t->finals < 2 && t->duels > 0;
    if (!another) {
        freeze(cycle, 0, reason, one, two, now);
        return;
    }
    t->rival[champion].state = HAK_RIVAL_SPENT;
    t->stage = HAK_TOURNAMENT_FIELD;
    hak_tournament_pair(t);
    cycle->strategy = (uint8_t)hak_tournament_now(t);
    change(cycle, HAK_STAGE_LEARN, reason, one, two, now);
}

/* So many errors of a mean are exceeded by chance in one of eighty: two and a half, and of few duels more, their error being guessed itself (about
 * Student's t; with 2.5 at four duels a tenth of the good ones was refused). */
static double few_errors(const struct hak_mean *mean) { return 2.5 * (1 + 3 / (mean->n > 3 ? mean->n - 1.5 : 1.5)); }

static void trial_judge(struct hak_cycle *cycle, uint64_t now) {
    const struct hak_trial *trial = &cycle->trial;
    double gain = trial->gain.mean, error = hak_mean_error(&trial->gain);
    double time = trial->time_change.mean, time_error = hak_mean_error(&trial->time_change);
    double tail = trial->dear_change.mean, tail_error = hak_mean_error(&trial->dear_change);
    double twin = trial->twin.mean, twin_error = hak_mean_error(&trial->twin);
    if (trial->gain.n < 8) return;
    /* at any time: what is beyond doubt */
    if (time - 2.5 * time_error > TIME_MAX) {
        trial_failed(cycle, HAK_REASON_trial_time, millionths(time), millionths(time_error), now);
        return;
    }
    if (gain + 2.5 * error < cycle->claimed / 2) {
        trial_failed(cycle, HAK_REASON_trial_cost, millionths(gain), millionths(cycle->claimed), now);
        return;
    }
    bool long_enough = now - trial->begin_ms >= TRIAL_MS / cycle->hurry || trial->phases >= 2;
    if (trial->gain.n < TRIAL_DUELS || trial->twin.n < TRIAL_TWINS || !long_enough) return;
    bool may_cost = time + 2 * time_error > TIME_MAX, is_last = trial->duels >= TRIAL_DUELS_MOST;
    bool is_look = trial->duels % LOOK_DUELS == 0; /* of many looks one shows by chance what is hoped for */
    if (!is_last && ((may_cost && time_error > TIME_ERROR_MAX) || (trial->duels > 2 * TRIAL_DUELS && !is_look))) return;
    /* at its end */
    if (hak_abs(twin) > TWIN_MAX && hak_abs(twin) > few_errors(&trial->twin) * twin_error)
        trial_failed(cycle, HAK_REASON_trial_noise, millionths(twin), millionths(twin_error), now);
    else if (gain < cycle->claimed / 2 || gain - error < 0)
        trial_failed(cycle, HAK_REASON_trial_cost, millionths(gain), millionths(cycle->claimed), now);
    else if (time > TIME_MAX && time > time_error)
        trial_failed(cycle, HAK_REASON_trial_time, millionths(time), millionths(time_error), now);
    else if (may_cost && time_error > 2 * TIME_ERROR_MAX)
        trial_failed(cycle, HAK_REASON_trial_noise, millionths(time), millionths(time_error), now);
    else if (tail > TAIL_MAX && tail > 2 * tail_error)
        trial_failed(cycle, HAK_REASON_trial_tail, millionths(tail), millionths(tail_error), now);
    else if ((double)trial->peak[1] > MEMORY_MAX * (double)trial->peak[0])
        trial_failed(cycle, HAK_REASON_trial_memory, (int64_t)(trial->peak[0] >> 10), (int64_t)(trial->peak[1] >> 10), now);
    else if (cycle->policy == HAK_EVO_CANARY) {
        unsigned champion = trial->champion;
        change(cycle, HAK_STAGE_CANARY, HAK_REASON_trial_passed, millionths(gain), millionths(error), now);
        trial_begin(cycle, champion, now);
    } else {
        freeze(cycle, trial->champion, HAK_REASON_trial_passed, millionths(gain), millionths(error), now);
    }
}

/* --- LEARN --- */

static void learn_judge(struct hak_cycle *cycle, uint64_t now) {
    struct hak_tournament *t = &cycle->tournament;
    if (t->duels + t->void_duels >= NOISE_DUELS && t->noise > NOISE_MAX && cycle->window_times < WINDOW_TIMES_MAX) {
        /* a window that cuts a period somewhere errs by a part of it, the less the more periods it holds */
        double times = t->noise / NOISE_WANTED;
        do cycle->window_times *= 2, times /= 2;
        while (times > 1 && cycle->window_times < WINDOW_TIMES_MAX);
        hak_tournament_anew(t);
        return;
    }
    if (t->stage != HAK_TOURNAMENT_OVER) return;
    if (t->winner) {
        cycle->claimed = t->final_sum / t->final_duels; /* not the field's fit: that one chose him, and flatters */
        cycle->claimed_error = t->noise / hak_sqrt(t->final_duels);
        cycle->claimed_duels = t->rival[t->winner].duels;
    }
    if (cycle->policy == HAK_EVO_LEARN) {
        learn(cycle, t->winner ? HAK_REASON_gain_proved : HAK_REASON_nothing_gained,
              t->winner ? millionths(cycle->claimed) : (int64_t)t->duels,
              t->winner ? millionths(cycle->claimed_error) : (int64_t)t->windows, now);
    } else if (t->winner) {
        trial_begin(cycle, t->winner, now);
        change(cycle, HAK_STAGE_CANARY, HAK_REASON_gain_proved, millionths(cycle->claimed), millionths(cycle->claimed_error), now);
    } else {
        freeze(cycle, 0, HAK_REASON_nothing_gained, t->duels, t->windows, now);
    }
}

/* --- FROZEN --- */

static double moved(double *up, double *down, const struct hak_mean *usual, double x) {
    double off = (x - usual->mean) / spread(usual);
    *up += off - CUSUM_FORGIVEN;
    *down += -off - CUSUM_FORGIVEN;
    if (*up < 0) *up = 0;
    if (*down < 0) *down = 0;
    return *up > *down ? *up : *down;
}

static void frozen_window(struct hak_cycle *cycle, const struct hak_measure *window, uint64_t live_bytes, uint64_t now) {
    struct hak_watched *w = &cycle->watched;
    double faults = hak_ln(1 + window->faults_each_s), visits = hak_ln(1 + window->visits_each_s);
    double each_live = live_bytes ? ((double)window->resident_bytes + LIVE_BYTES) / ((double)live_bytes + LIVE_BYTES) : 0;
    if (window->visits < 100) return; /* idle: rates of nothing */
    w->looks++;
    w->returned_bytes += window->returned_bytes;
    w->retouched_bytes += window->retouched_bytes;
    if (each_live > 0 && w->memory_each_live == 0) w->memory_each_live = each_live;
    if (!w->threads) w->threads = window->thread_count;
    if (w->looks <= LOOKS_LEARNT) {
        hak_mean_add(&w->faults, faults);
        hak_mean_add(&w->visits, visits);
        w->returned_bytes = w->retouched_bytes = 0;
        return;
    }
    if (moved(&w->sum[0], &w->sum[1], &w->faults, faults) > CUSUM_ALARM ||
        moved(&w->sum[2], &w->sum[3], &w->visits, visits) > CUSUM_ALARM) {
        hak_cycle_wake(cycle, HAK_REASON_load_changed, (int64_t)window->faults_each_s, (int64_t)window->visits_each_s, now);
        return;
    }
    if (w->returned_bytes >= 64 << 20) {
        w->returns_bad = w->retouched_bytes * 5 > w->returned_bytes ? w->returns_bad + 1 : 0;
        if (w->returns_bad >= 3) {
            hak_cycle_wake(cycle, HAK_REASON_touched_again, (int64_t)(w->returned_bytes >> 10),
                           (int64_t)(w->retouched_bytes >> 10), now);
            return;
        }
        w->returned_bytes = w->retouched_bytes = 0;
    }
    if (each_live > 0) {
        w->memory_bad = each_live > 1.5 * w->memory_each_live ? w->memory_bad + 1 : 0;
        if (w->memory_bad >= 3) {
            hak_cycle_wake(cycle, HAK_REASON_memory_grew, (int64_t)(1000 * w->memory_each_live), (int64_t)(1000 * each_live), now);
            return;
        }
    }
    if (window->thread_count >= 2 * w->threads && window->thread_count >= 4)
        hak_cycle_wake(cycle, HAK_REASON_threads_doubled, (int64_t)w->threads, (int64_t)window->thread_count, now);
}

/* --- the caller's --- */

void hak_cycle_start(struct hak_cycle *cycle, enum hak_evo_policy policy, unsigned count, uint32_t plays, uint32_t controls,
                     uint32_t hurry, uint64_t seed, uint64_t now_ms) {
    memset(cycle, 0, sizeof *cycle);
    cycle->policy = (uint8_t)policy;
    cycle->hurry = hurry ? hurry : 1;
    cycle->window_times = 1;
    cycle->start_ms = cycle->frozen_ms = now_ms;
    hak_tournament_start(&cycle->tournament, count, seed);
    for (unsigned i = 1; i < count; i++) {
        if (!(plays >> i & 1)) cycle->tournament.rival[i].state = HAK_RIVAL_BARRED;
        cycle->tournament.rival[i].is_control = controls >> i & 1;
    }
    hak_tournament_pair(&cycle->tournament);
    cycle->stage = HAK_STAGE_FROZEN;
    change(cycle, HAK_STAGE_FROZEN, HAK_REASON_program_begins, 0, 0, now_ms);
}

void hak_cycle_resume(struct hak_cycle *cycle, unsigned strategy, enum hak_stage stage, double gain, double error,
                      unsigned duels, unsigned runs, uint64_t now_ms) {
    cycle->claimed = gain;
    cycle->claimed_error = error;
    cycle->claimed_duels = duels;
    if (cycle->tournament.rival[strategy].state == HAK_RIVAL_BARRED && strategy) return; /* the user decides where it differs */
    cycle->is_check = stage == HAK_STAGE_FROZEN && strategy && cycle->policy == HAK_EVO_AUTO && runs % CHECK_RUNS == CHECK_RUNS - 1;
    if (stage == HAK_STAGE_CANARY || cycle->is_check) cycle->candidate = (uint8_t)strategy;
    else if (stage == HAK_STAGE_FROZEN) freeze(cycle, strategy, HAK_REASON_policy_read, duels, runs, now_ms);
}

void hak_cycle_inherit(struct hak_cycle *cycle, unsigned strategy, uint64_t now_ms) {
    if (strategy) freeze(cycle, strategy, HAK_REASON_forked, 0, 0, now_ms);
    else change(cycle, HAK_STAGE_FROZEN, HAK_REASON_forked, 0, 0, now_ms);
}

void hak_cycle_begin(struct hak_cycle *cycle, uint64_t now_ms) {
    bool goes_on = cycle->candidate && (cycle->policy == HAK_EVO_AUTO || cycle->policy == HAK_EVO_CANARY);
    if (goes_on) {
        trial_begin(cycle, cycle->candidate, now_ms);
        cycle->trial.phases = 1; /* another run is another phase of the load */
        change(cycle, HAK_STAGE_CANARY, HAK_REASON_second_over, 0, 0, now_ms);
    } else if (cycle->policy == HAK_EVO_LEARN || (cycle->policy == HAK_EVO_AUTO && !cycle->stay_ms) ||
        (cycle->policy == HAK_EVO_CANARY && !cycle->chosen)) {
        learn(cycle, HAK_REASON_second_over, 0, 0, now_ms);
    } else if (cycle->policy == HAK_EVO_CANARY) {
        trial_begin(cycle, cycle->chosen, now_ms);
        change(cycle, HAK_STAGE_CANARY, HAK_REASON_second_over, 0, 0, now_ms);
    }
}

/* Whose turn it is in the duel. */
static void turn(struct hak_cycle *cycle) {
    if (cycle->stage == HAK_STAGE_LEARN) cycle->strategy = (uint8_t)hak_tournament_now(&cycle->tournament);
    if (cycle->stage == HAK_STAGE_CANARY)
        cycle->strategy = (uint8_t)(trial_is_champion(&cycle->trial) ? cycle->trial.champion : 0);
}

void hak_cycle_window(struct hak_cycle *cycle, const struct hak_measure *window, uint64_t live_bytes, uint64_t now_ms) {
    if (cycle->stage == HAK_STAGE_FROZEN) {
        frozen_window(cycle, window, live_bytes, now_ms);
    } else if (cycle->rest) { /* under the usual choice */
        if (--cycle->rest == 0) turn(cycle);
    } else if (cycle->stage == HAK_STAGE_LEARN) {
        if (hak_tournament_window(&cycle->tournament, window->cost)) {
            cycle->spoilt = 0;
            learn_judge(cycle, now_ms);
        }
        if (cycle->stage == HAK_STAGE_LEARN) cycle->strategy = (uint8_t)hak_tournament_now(&cycle->tournament);
    } else if (cycle->stage == HAK_STAGE_CANARY) {
        if (trial_window(&cycle->trial, window)) {
            cycle->spoilt = 0;
            trial_judge(cycle, now_ms);
        }
        if (cycle->stage == HAK_STAGE_CANARY)
            cycle->strategy = (uint8_t)(trial_is_champion(&cycle->trial) ? cycle->trial.champion : 0);
    }
}

void hak_cycle_spoilt(struct hak_cycle *cycle) {
    if (cycle->tournament.stage != HAK_TOURNAMENT_OVER) hak_tournament_pair(&cycle->tournament); /* drawn anew */
    trial_pair(&cycle->trial);
    cycle->spoilt += cycle->spoilt < SPOILT_MAX;
    if (cycle->spoilt > SPOILT_FEW) cycle->rest = 1u << (cycle->spoilt - SPOILT_FEW);
    if (cycle->rest) cycle->strategy = cycle->chosen;
    else turn(cycle);
}

void hak_cycle_bar(struct hak_cycle *cycle, uint32_t barred, uint64_t now_ms) {
    struct hak_tournament *t = &cycle->tournament;
    for (unsigned i = 1; i < t->count; i++)
        if ((barred >> i & 1) && t->rival[i].state != HAK_RIVAL_BARRED) hak_tournament_bar(t, i);
    if (cycle->stage == HAK_STAGE_CANARY && (barred >> cycle->trial.champion & 1)) learn(cycle, HAK_REASON_asked, 0, 0, now_ms);
    if (cycle->stage == HAK_STAGE_LEARN && !cycle->rest) cycle->strategy = (uint8_t)hak_tournament_now(t);
}

void hak_cycle_wake(struct hak_cycle *cycle, enum hak_reason reason, int64_t one, int64_t two, uint64_t now_ms) {
    if (cycle->stage != HAK_STAGE_FROZEN || cycle->policy != HAK_EVO_AUTO) return;
    if (now_ms - cycle->frozen_ms < cycle->stay_ms) { /* too soon: what it shows now is what later looks are compared with */
        uint64_t threads = cycle->watched.threads, limit = cycle->watched.limit_bytes;
        memset(&cycle->watched, 0, sizeof cycle->watched);
        cycle->watched.threads = threads;
        cycle->watched.limit_bytes = limit;
        return;
    }
    learn(cycle, reason, one, two, now_ms);
}

bool hak_cycle_sites(struct hak_cycle *cycle, uint64_t unseen, uint64_t all, uint64_t now_ms) {
    struct hak_watched *w = &cycle->watched;
    if (cycle->stage != HAK_STAGE_FROZEN || w->looks <= LOOKS_LEARNT) return false;
    w->unseen_bytes += unseen;
    w->sites_bytes += all;
    if (w->sites_bytes < SITES_BYTES) return true;
    unseen = w->unseen_bytes, all = w->sites_bytes;
    w->unseen_bytes = w->sites_bytes = 0;
    if (unseen > all / 4)
        hak_cycle_wake(cycle, HAK_REASON_new_sites, (int64_t)(unseen * 1000 / all), (int64_t)(all >> 10), now_ms);
    return w->looks > LOOKS_LEARNT; /* woken too soon: they are usual from now on */
}

void hak_cycle_limit(struct hak_cycle *cycle, uint64_t bytes, uint64_t now_ms) {
    uint64_t before = cycle->watched.limit_bytes;
    cycle->watched.limit_bytes = bytes;
    if (before && before != bytes)
        hak_cycle_wake(cycle, HAK_REASON_limit_changed, (int64_t)(before >> 20), (int64_t)(bytes >> 20), now_ms);
}
