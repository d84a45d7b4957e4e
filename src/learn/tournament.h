/* tournament.h - which of a few strategies is the cheapest, found by duels under a load that drifts.
 *
 * Owns:      a struct of the caller's. Pure: no clock, no allocator, no atomics; the same seed and the same costs give
 *            the same duels, so that a simulation drives it (test/unit/tournament.c).
 * Threads:   one at a time.
 * The duel:  four windows A B B A or B A A B; the score is the mean of the two differences of log costs, so that a load that
 *            grows steadily cancels. The two halves of a duel also tell its noise; where they disagree by far more than
 *            duels do, the load jumped between them, and the duel is void.
 * The field: gains over the default (in logs of cost) are fitted to all duels by least squares. Whom to try next is drawn
 *            from what is known of them (top-two Thompson sampling). A tenth of the duels is drawn blindly, and a tenth gives
 *            the rival that is nearest to being proved worse to the leader.
 * Out:       a rival is out when a test that may be looked at after every duel says that it is worse (below).
 * The final: the field's leader meets the default in duels of their own, until a sequential test has decided.
 * Measured:  test/unit/tournament.c prints it; docs/learning.md has the table.
 * Rejected:  scores of single windows (42-50% find the best), a fixed schedule of duels, Wald's SPRT of 0 against 1% for
 *            the gain (45 duels where the mixture needs 20): docs/decisions/0006-judging-strategies.md.
 */
#ifndef HAK_LEARN_TOURNAMENT_H
#define HAK_LEARN_TOURNAMENT_H

#include "base/attr.h"

enum { HAK_RIVALS_MAX = 16 };

enum hak_rival_state {
    HAK_RIVAL_IN,
    HAK_RIVAL_ASIDE, /* hardly the best, and not proved to be worse */
    HAK_RIVAL_SPENT, /* led the field, and did not show its gain in the final; not proved to be worse either */
    HAK_RIVAL_OUT,   /* proved worse than another */
    HAK_RIVAL_BARRED /* takes no part: it differs only where the user decides */
};

enum hak_tournament_stage { HAK_TOURNAMENT_FIELD, HAK_TOURNAMENT_FINAL, HAK_TOURNAMENT_OVER };

struct hak_rival {
    double gain, error; /* over the default, in logs of cost (0.01: 1% cheaper), and its standard error */
    uint32_t duels;
    uint8_t state;      /* enum hak_rival_state */
    uint8_t is_control; /* takes part, may be declared worse, and never wins */
};

struct hak_tournament {
    struct hak_rival rival[HAK_RIVALS_MAX]; /* 0 is the default: gain 0 by definition */
    uint32_t count;
    uint32_t stage, winner; /* OVER: the winner, 0 when none is better than the default */
    uint32_t duels, void_duels, windows, finals;
    uint64_t dice;
    double noise;           /* standard deviation of one duel's score */
    /* the duel in progress: */
    uint8_t pair[2], order, step;
    double cost[4];
    /* what duels have told: sums over pairs, and the noise by halves and by what the fit does not explain */
    float met[HAK_RIVALS_MAX][HAK_RIVALS_MAX]; /* symmetric counts; floats, because old ones fade */
    double pull[HAK_RIVALS_MAX];
    double covariance[HAK_RIVALS_MAX][HAK_RIVALS_MAX]; /* of the fit, data alone and a wide prior */
    double half_sum, half_count, fit_sum, fit_count;
    double recent[32];      /* halves' disagreement of the last duels, the voided ones with them */
    /* the final: */
    uint32_t champion, final_duels;
    double final_sum;
};

void hak_tournament_start(struct hak_tournament *t, unsigned count, uint64_t seed);

/* Old duels count a quarter; nobody is out; the field begins anew. */
void hak_tournament_again(struct hak_tournament *t);

/* All that duels have told is forgotten; who takes part stays. */
void hak_tournament_anew(struct hak_tournament *t);

/* What an earlier tournament told of a rival: its rating, the noise that was, and how many duels to believe (a quarter is). */
void hak_tournament_believe(struct hak_tournament *t, unsigned rival, int32_t elo, double noise, unsigned duels);

/* The rival takes no part any more. */
void hak_tournament_bar(struct hak_tournament *t, unsigned rival);

/* Draws the next duel, whatever was measured of the one in progress; for a caller who has just set states, or cannot use that. */
void hak_tournament_pair(struct hak_tournament *t);

/* Which strategy the next window is to run under. */
unsigned hak_tournament_now(const struct hak_tournament *t);

/* The window has cost this much per unit of work, as a logarithm. True: a duel was completed by it. */
bool hak_tournament_window(struct hak_tournament *t, double log_cost);

/* The log of the evidence that a gain is not 0, its estimate having this mean and variance; may be looked at after every
 * duel: P(ever above ln(1/a) | the gain is 0) <= a, whatever made one stop (Ville's inequality; a mixture SPRT). */
double hak_tournament_evidence(double mean, double variance);
#define HAK_TOURNAMENT_PROOF 6.907755278982137 /* ln 1000 */

/* One random number; for the caller's own dice. */
uint64_t hak_dice(uint64_t *dice);

/* 400 log10(p / (1 - p)) for p = the chance to win one duel against the default, and its standard error. */
struct hak_elo {
    int32_t rating, error;
};
struct hak_elo hak_tournament_elo(const struct hak_tournament *t, unsigned rival);

#endif
