/* cycle.h - LEARN -> CANARY -> FROZEN and back: which stage learning is in, and why it went there.
 *
 *   LEARN    strategies duel (tournament.h). A winner goes on trial; if there is none the default is frozen.
 *   CANARY   the winner is on trial against the default, in duels of its own, with duels against itself between.
 *   FROZEN   one strategy is in force, nothing is measured but a few sums per second. What they show may end it; each time
 *            that learning then finds nothing else it stays frozen twice as long.
 *
 * Owns:      a struct of the caller's. Pure: time and windows come as arguments, so that a simulation drives it
 *            (test/unit/cycle.c).
 * Threads:   one at a time.
 * Judged:    docs/learning.md, section "How it is judged"; reasons and their numbers: reasons.def.
 */
#ifndef HAK_LEARN_CYCLE_H
#define HAK_LEARN_CYCLE_H

#include "learn/tournament.h"
#include "learn/measure.h"

enum hak_stage { HAK_STAGE_OFF, HAK_STAGE_LEARN, HAK_STAGE_CANARY, HAK_STAGE_FROZEN };
enum hak_evo_policy { HAK_EVO_AUTO, HAK_EVO_LEARN, HAK_EVO_CANARY, HAK_EVO_FROZEN, HAK_EVO_OFF };

enum hak_reason {
#define HAK_REASON(name, numbers, words) HAK_REASON_##name,
#include "learn/reasons.def"
#undef HAK_REASON
    HAK_REASON_COUNT
};

/* "program-begins"; the name as it stands in policy files and statistics. */
const char *hak_reason_name(enum hak_reason reason);

struct hak_stage_change {
    uint64_t ms; /* since the start of the process */
    uint8_t from, to, reason, strategy; /* the strategy in force after it */
    int64_t number[2];
};
enum { HAK_HISTORY_MAX = 32 };

/* The mean of differences and its error, as they come (Welford). */
struct hak_mean {
    double n, mean, squares;
};
void hak_mean_add(struct hak_mean *mean, double x);
double hak_mean_error(const struct hak_mean *mean);

struct hak_trial {
    uint32_t champion, duels;
    uint8_t is_twin, order, step;
    double cost[4], time[4], dear[4];
    struct hak_mean gain, time_change, dear_change, twin;
    uint64_t peak[2]; /* of the default, of the champion */
    double level;     /* of the load: ln cost of the default's windows, slowly */
    uint32_t level_off, phases;
    uint64_t begin_ms, dice;
};

struct hak_watched {
    uint32_t looks;
    struct hak_mean faults, visits;         /* ln(1 + per second), while they are being learnt */
    double sum[4];                          /* CUSUM: faults up, down, visits up, down */
    uint64_t returned_bytes, retouched_bytes;
    uint64_t unseen_bytes, sites_bytes;     /* of growth: from sites that were not known, from all */
    uint32_t returns_bad, memory_bad;
    double memory_each_live;                /* of the first looks */
    uint64_t threads;
    uint64_t limit_bytes;
};

struct hak_cycle {
    uint8_t stage, policy, strategy, chosen; /* in force now; chosen when last frozen */
    uint8_t candidate; /* on trial when an earlier run ended; 0: none */
    uint8_t is_check;  /* candidate was frozen by earlier runs */
    uint8_t spoilt;    /* duels in a row that were not brought to their end */
    uint8_t window_times; /* windows are this many times their least length, because duels were too noisy */
    uint32_t hurry;
    uint64_t start_ms, frozen_ms, stay_ms;
    double claimed, claimed_error; /* the gain that LEARN found; the error */
    uint32_t claimed_duels, changes;
    uint32_t rest;     /* windows still under the usual choice, because duels were spoilt */
    struct hak_tournament tournament;
    struct hak_trial trial;
    struct hak_watched watched;
    struct hak_stage_change history[HAK_HISTORY_MAX]; /* ring: `changes` written so far */
};

/* `plays` says which strategies take part, `controls` which of them are controls (bits). Begins FROZEN on the default. */
void hak_cycle_start(struct hak_cycle *cycle, enum hak_evo_policy policy, unsigned count, uint32_t plays, uint32_t controls,
                     uint32_t hurry, uint64_t seed, uint64_t now_ms);

/* A policy file was believed: its strategy, its stage, and the duels behind it. */
void hak_cycle_resume(struct hak_cycle *cycle, unsigned strategy, enum hak_stage stage, double gain, double error,
                      unsigned duels, unsigned runs, uint64_t now_ms);

/* A forked child goes on with what its parent had frozen. */
void hak_cycle_inherit(struct hak_cycle *cycle, unsigned strategy, uint64_t now_ms);

/* The first second is over: what the policy wants begins. */
void hak_cycle_begin(struct hak_cycle *cycle, uint64_t now_ms);

/* A window under cycle->strategy is complete; afterwards cycle->strategy is what the next one is to run under. In FROZEN a
 * window is what was seen since the last look, about a second; live_bytes 0 where nobody counted. */
void hak_cycle_window(struct hak_cycle *cycle, const struct hak_measure *window, uint64_t live_bytes, uint64_t now_ms);

/* What was measured of the duel in progress cannot be used: another is drawn. After two in a row what was chosen last is in force for some windows. */
void hak_cycle_spoilt(struct hak_cycle *cycle);

/* Strategies that the user's settings have made equal to others (bits): they take no part any more. */
void hak_cycle_bar(struct hak_cycle *cycle, uint32_t barred, uint64_t now_ms);

/* FROZEN ends (if it was long enough and the policy lets it), for a reason that windows do not show. */
void hak_cycle_wake(struct hak_cycle *cycle, enum hak_reason reason, int64_t one, int64_t two, uint64_t now_ms);

/* Growth took so many bytes since the last call, `unseen` of them for call sites that were not known. False: what is usual
 * is still being learnt, and every site that was seen until now belongs to it. */
bool hak_cycle_sites(struct hak_cycle *cycle, uint64_t unseen, uint64_t all, uint64_t now_ms);

/* Another limit of memory was seen; the first call only notes it. */
void hak_cycle_limit(struct hak_cycle *cycle, uint64_t bytes, uint64_t now_ms);

#endif
