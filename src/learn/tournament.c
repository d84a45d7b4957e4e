/* tournament.c - see tournament.h. */
#include "learn/tournament.h"

#include "learn/maths.h"

#include <string.h>

enum { RECENT = 32, FIELD_DUELS_MAX = 96, FIELD_DUELS_MIN = 6, FINAL_DUELS_MAX = 120, FINALS_MAX = 2 };

/* What gains are like before anything is known (the prior of the draw), and what a proof is mixed over. */
#define GAIN_USUAL   0.12
#define GAIN_MIXED   0.03
#define GAIN_WORTH   0.01 /* the least that a change is made for */
#define NOISE_FIRST  0.06 /* of a duel, believed like this many duels */
#define NOISE_BELIEF 6.0
#define NOISE_LEAST  0.0005
#define VOID_TIMES   4.5  /* a half-difference this many times the usual: the load jumped */

/* --- dice --- */

uint64_t hak_dice(uint64_t *dice) { /* splitmix64, Steele et al. 2014 */
    uint64_t z = *dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static unsigned dice_below(uint64_t *dice, unsigned n) { return (unsigned)((hak_dice(dice) >> 32) * n >> 32); }

/* Nearly normal: the sum of twelve even ones. Only draws of whom to try depend on it. */
static double dice_normal(uint64_t *dice) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(hak_dice(dice) >> 11) * 0x1p-53;
    return sum;
}

/* --- what is known --- */

double hak_tournament_evidence(double mean, double variance) {
    double mixed = GAIN_MIXED * GAIN_MIXED, all = variance + mixed;
    return 0.5 * (hak_ln(variance / all) + mean * mean / variance * mixed / all);
}

static bool plays(const struct hak_tournament *t, unsigned i) {
    return i == 0 || t->rival[i].state < HAK_RIVAL_SPENT;
}

/* Inverts a symmetric positive definite matrix of n rows in place by Gauss and Jordan, without pivots. */
static void invert(double m[HAK_RIVALS_MAX][HAK_RIVALS_MAX], unsigned n) {
    for (unsigned k = 0; k < n; k++) {
        double pivot = 1 / m[k][k];
        for (unsigned j = 0; j < n; j++) m[k][j] *= j == k ? 0 : pivot;
        m[k][k] = pivot;
        for (unsigned i = 0; i < n; i++) {
            if (i == k) continue;
            double factor = m[i][k];
            m[i][k] = 0;
            for (unsigned j = 0; j < n; j++) m[i][j] -= factor * m[k][j];
        }
    }
}

/* Least squares with a wide prior. Row 0 is the default, whose gain is 0: it is left out of the matrix. */
static void fit(struct hak_tournament *t) {
    unsigned n = t->count - 1;
    double variance = t->noise * t->noise;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned j = 0; j < n; j++) t->covariance[i][j] = i == j ? 0 : -t->met[i + 1][j + 1];
        for (unsigned j = 0; j < t->count; j++) t->covariance[i][i] += t->met[i + 1][j];
        for (unsigned j = 0; j < n; j++) t->covariance[i][j] /= variance;
        t->covariance[i][i] += 1 / (GAIN_USUAL * GAIN_USUAL);
    }
    invert(t->covariance, n);
    for (unsigned i = 0; i < n; i++) {
        double gain = 0;
        for (unsigned j = 0; j < n; j++) gain += t->covariance[i][j] * t->pull[j + 1] / variance;
        t->rival[i + 1].gain = gain;
        t->rival[i + 1].error = hak_sqrt(t->covariance[i][i]);
    }
}

/* The variance of the difference of two gains. */
static double between(const struct hak_tournament *t, unsigned a, unsigned b) {
    double sum = 0;
    if (a) sum += t->covariance[a - 1][a - 1];
    if (b) sum += t->covariance[b - 1][b - 1];
    if (a && b) sum -= 2 * t->covariance[a - 1][b - 1];
    return sum;
}

static unsigned leader(const struct hak_tournament *t) {
    unsigned best = 0;
    for (unsigned i = 1; i < t->count; i++)
        if (plays(t, i) && !t->rival[i].is_control && t->rival[i].gain > t->rival[best].gain) best = i;
    return best;
}

/* --- whom to try --- */

/* One draw from what is known of all gains: mean + L z with L L' = covariance (Cholesky). */
static void draw(struct hak_tournament *t, double drawn[HAK_RIVALS_MAX]) {
    double lower[HAK_RIVALS_MAX][HAK_RIVALS_MAX], z[HAK_RIVALS_MAX];
    unsigned n = t->count - 1;
    for (unsigned i = 0; i < n; i++) {
        z[i] = dice_normal(&t->dice);
        for (unsigned j = 0; j <= i; j++) {
            double sum = t->covariance[i][j];
            for (unsigned k = 0; k < j; k++) sum -= lower[i][k] * lower[j][k];
            lower[i][j] = i == j ? hak_sqrt(sum > 1e-16 ? sum : 1e-16) : sum / lower[j][j];
        }
    }
    drawn[0] = 0;
    for (unsigned i = 0; i < n; i++) {
        drawn[i + 1] = t->rival[i + 1].gain;
        for (unsigned k = 0; k <= i; k++) drawn[i + 1] += lower[i][k] * z[k];
    }
}

static unsigned draw_best(struct hak_tournament *t) {
    double drawn[HAK_RIVALS_MAX];
    unsigned best = 0;
    draw(t, drawn);
    for (unsigned i = 1; i < t->count; i++)
        if (plays(t, i) && drawn[i] > drawn[best]) best = i;
    return best;
}

/* The rival that would be out with a little more evidence; 0: nobody is near. */
static unsigned nearly_out(const struct hak_tournament *t, unsigned best) {
    unsigned found = 0;
    double most = 0;
    for (unsigned i = 1; i < t->count; i++) {
        double behind = t->rival[best].gain - t->rival[i].gain;
        if (i == best || !plays(t, i) || behind < 0) continue;
        double evidence = hak_tournament_evidence(behind, between(t, best, i));
        if (evidence > most) most = evidence, found = i;
    }
    return found;
}

static unsigned draw_blindly(struct hak_tournament *t) {
    unsigned i;
    do i = dice_below(&t->dice, t->count);
    while (!plays(t, i));
    return i;
}

void hak_tournament_pair(struct hak_tournament *t) {
    enum { TRIES = 24 };
    unsigned a, b, players = 0, fewest = 0;
    for (unsigned i = 0; i < t->count; i++) {
        players += plays(t, i);
        if (plays(t, i) && (!plays(t, fewest) || t->rival[i].duels < t->rival[fewest].duels)) fewest = i;
    }
    if (t->stage == HAK_TOURNAMENT_FINAL) {
        a = t->champion, b = 0;
    } else if (players < 2) {
        a = b = 0;
    } else {
        unsigned how = dice_below(&t->dice, 10), best = leader(t), worst = how == 1 ? nearly_out(t, best) : 0;
        bool blindly = how == 0;
        /* three duels for everybody first, the least known against a draw of the best */
        a = t->rival[fewest].duels < 3 ? fewest : blindly ? draw_blindly(t) : draw_best(t);
        b = a;
        if (worst) a = worst, b = best;
        for (unsigned i = 0; b == a && i < TRIES; i++) b = blindly ? draw_blindly(t) : draw_best(t);
        while (b == a) b = draw_blindly(t);
    }
    t->order = (uint8_t)(hak_dice(&t->dice) >> 63);
    t->pair[0] = (uint8_t)a;
    t->pair[1] = (uint8_t)b;
    t->step = 0;
}

/* --- what follows from a duel --- */

static void over(struct hak_tournament *t, unsigned winner) {
    t->stage = HAK_TOURNAMENT_OVER;
    t->winner = winner;
}

static void noise_update(struct hak_tournament *t) {
    double first = NOISE_FIRST * NOISE_FIRST * NOISE_BELIEF;
    double halves = (t->half_sum + first) / (t->half_count + NOISE_BELIEF);
    double fits = (t->fit_sum + first) / (t->fit_count + NOISE_BELIEF);
    /* while duels are few, what the fit leaves is mostly what it did not know yet */
    double variance = t->fit_count > 2 * NOISE_BELIEF && fits > halves ? fits : halves;
    t->noise = hak_sqrt(variance);
    if (t->noise < NOISE_LEAST) t->noise = NOISE_LEAST;
}

static double recent_median(const struct hak_tournament *t) {
    double sorted[RECENT];
    unsigned n = t->duels + t->void_duels < RECENT ? t->duels + t->void_duels : RECENT;
    for (unsigned i = 0; i < n; i++) {
        unsigned at = i;
        for (; at > 0 && sorted[at - 1] > t->recent[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = t->recent[i];
    }
    return n < 8 ? NOISE_FIRST : sorted[n / 2] / 0.6745; /* of a half-normal one */
}

static void field_judge(struct hak_tournament *t) {
    unsigned best = leader(t);
    bool decided = t->duels >= FIELD_DUELS_MIN, worth = false;
    for (unsigned i = 1; i < t->count; i++) {
        struct hak_rival *rival = &t->rival[i];
        if (!plays(t, i)) continue;
        double variance = between(t, best, i), behind = t->rival[best].gain - rival->gain;
        if (i != best && rival->duels >= 3 && behind > 0 &&
            hak_tournament_evidence(behind, variance) > HAK_TOURNAMENT_PROOF) {
            rival->state = HAK_RIVAL_OUT;
            continue;
        }
        double doubt = 2 * hak_sqrt(variance);
        rival->state = i != best && behind > doubt ? HAK_RIVAL_ASIDE : HAK_RIVAL_IN;
        if (i != best && behind + GAIN_WORTH < doubt && !rival->is_control) decided = false;
        if (rival->gain + 2 * rival->error > GAIN_WORTH && !rival->is_control) worth = true;
    }
    if (!worth && t->duels >= FIELD_DUELS_MIN) { /* nobody can be hoped to be worth a change */
        over(t, 0);
    } else if (decided || t->duels >= FIELD_DUELS_MAX) {
        if (best == 0) {
            over(t, 0);
            return;
        }
        t->stage = HAK_TOURNAMENT_FINAL;
        t->champion = best;
        t->final_duels = 0;
        t->final_sum = 0;
        t->finals++;
    }
}

/* Only the final's own duels count: those of the field chose the champion, and flatter him. */
static void final_judge(struct hak_tournament *t, double score) {
    double noise = t->noise * t->noise;
    t->final_sum += score;
    t->final_duels++;
    double mean = t->final_sum / t->final_duels, variance = noise / t->final_duels;
    /* Wald: how likely such scores are under a gain of 1% against one of 0 */
    double worth = t->final_duels * GAIN_WORTH * (mean - GAIN_WORTH / 2) / noise;
    if (t->final_duels >= 4 && mean > GAIN_WORTH && hak_tournament_evidence(mean, variance) > HAK_TOURNAMENT_PROOF) {
        over(t, t->champion);
        return;
    }
    bool hopeless = t->final_duels >= 8 && mean + 1.65 * hak_sqrt(variance) < 1.5 * GAIN_WORTH;
    if (worth > -2.99 && !hopeless && t->final_duels < FINAL_DUELS_MAX) return; /* ln 0.05 */
    t->rival[t->champion].state = HAK_RIVAL_SPENT;
    if (t->finals >= FINALS_MAX) {
        over(t, 0);
        return;
    }
    t->stage = HAK_TOURNAMENT_FIELD;
    field_judge(t);
}

static void duel_end(struct hak_tournament *t) {
    /* w0 w1 w2 w3 = A B B A, or B A A B with the sign turned */
    double first = t->cost[1] - t->cost[0], second = t->cost[2] - t->cost[3];
    double score = (first + second) / 2, apart = hak_abs(first - second) / 2;
    if (t->order) score = -score;
    unsigned a = t->pair[0], b = t->pair[1];
    double usual = recent_median(t);
    if (usual < NOISE_LEAST) usual = NOISE_LEAST;
    t->recent[(t->duels + t->void_duels) % RECENT] = apart;
    if (apart > VOID_TIMES * usual) {
        t->void_duels++;
        return;
    }
    t->duels++;
    t->rival[a].duels++;
    if (b != a) t->rival[b].duels++;
    t->half_sum += apart * apart;
    t->half_count++;
    double gain_a = a ? t->rival[a].gain : 0, gain_b = b ? t->rival[b].gain : 0;
    double surprise = score - (gain_a - gain_b), known = a == b ? 0 : between(t, a, b);
    if (known < t->noise * t->noise) { /* else the surprise is about the gains */
        t->fit_sum += surprise * surprise / (1 + known / (t->noise * t->noise));
        t->fit_count++;
    }
    if (t->half_count > 128) t->half_sum /= 2, t->half_count /= 2; /* noise changes with the program */
    if (t->fit_count > 128) t->fit_sum /= 2, t->fit_count /= 2;
    noise_update(t);
    if (a != b) {
        t->met[a][b] += 1;
        t->met[b][a] += 1;
        t->pull[a] += score;
        t->pull[b] -= score;
    }
    fit(t);
    if (t->stage == HAK_TOURNAMENT_FINAL) final_judge(t, score);
    else field_judge(t);
}

/* --- the caller's --- */

void hak_tournament_start(struct hak_tournament *t, unsigned count, uint64_t seed) {
    memset(t, 0, sizeof *t);
    t->count = count > HAK_RIVALS_MAX ? HAK_RIVALS_MAX : count;
    t->dice = seed;
    noise_update(t);
    fit(t);
    hak_tournament_pair(t);
}

#define ELO_EACH 295.6637 /* of a gain as large as a duel's noise; see hak_tournament_elo() */

void hak_tournament_believe(struct hak_tournament *t, unsigned rival, int32_t elo, double noise, unsigned duels) {
    if (rival == 0 || rival >= t->count) return;
    double weight = duels / 4.0;
    t->met[rival][0] += (float)weight;
    t->met[0][rival] += (float)weight;
    t->pull[rival] += weight * elo * noise / ELO_EACH;
    t->rival[rival].duels += duels / 4; /* as they weigh: the next file has them, too */
    fit(t);
    hak_tournament_pair(t);
}

void hak_tournament_bar(struct hak_tournament *t, unsigned rival) {
    t->rival[rival].state = HAK_RIVAL_BARRED;
    if (t->stage == HAK_TOURNAMENT_FINAL && t->champion == rival) t->stage = HAK_TOURNAMENT_FIELD;
    if (t->stage != HAK_TOURNAMENT_OVER) hak_tournament_pair(t);
}

void hak_tournament_anew(struct hak_tournament *t) {
    uint32_t count = t->count, windows = t->windows;
    uint8_t states[HAK_RIVALS_MAX], controls[HAK_RIVALS_MAX];
    for (unsigned i = 0; i < count; i++) states[i] = t->rival[i].state, controls[i] = t->rival[i].is_control;
    hak_tournament_start(t, count, t->dice);
    for (unsigned i = 0; i < count; i++) {
        t->rival[i].state = states[i] == HAK_RIVAL_BARRED ? HAK_RIVAL_BARRED : HAK_RIVAL_IN;
        t->rival[i].is_control = controls[i];
    }
    t->windows = windows;
    hak_tournament_pair(t);
}

void hak_tournament_again(struct hak_tournament *t) {
    for (unsigned i = 0; i < t->count; i++) {
        t->pull[i] /= 4;
        for (unsigned j = 0; j < t->count; j++) t->met[i][j] /= 4;
        if (t->rival[i].state < HAK_RIVAL_BARRED) t->rival[i].state = HAK_RIVAL_IN;
        t->rival[i].duels /= 4;
    }
    t->half_sum /= 4, t->half_count /= 4, t->fit_sum /= 4, t->fit_count /= 4;
    t->stage = HAK_TOURNAMENT_FIELD;
    t->duels = t->void_duels = t->finals = t->winner = 0;
    noise_update(t);
    fit(t);
    hak_tournament_pair(t);
}

unsigned hak_tournament_now(const struct hak_tournament *t) {
    bool inner = t->step == 1 || t->step == 2;
    return t->pair[inner ^ t->order];
}

bool hak_tournament_window(struct hak_tournament *t, double log_cost) {
    t->windows++;
    t->cost[t->step++] = log_cost;
    if (t->step < 4) return false;
    duel_end(t);
    if (t->stage != HAK_TOURNAMENT_OVER) hak_tournament_pair(t);
    return true;
}

struct hak_elo hak_tournament_elo(const struct hak_tournament *t, unsigned rival) {
    /* A duel's score is normal around the gain; the normal distribution is within 0.01 of the logistic one of 1.702 times
     * the slope, whose log odds are linear: 400 * 1.702 / ln 10. */
    double each = ELO_EACH / t->noise, rating = t->rival[rival].gain * each, error = t->rival[rival].error * each;
    if (rating > 9999) rating = 9999;
    if (rating < -9999) rating = -9999;
    if (error > 9999) error = 9999;
    return (struct hak_elo){ rival ? (int32_t)rating : 0, rival ? (int32_t)(error + 0.5) : 0 };
}
