/* shown.c - see shown.h. */
#include "learn/shown.h"

#include "base/text.h"
#include "learn/strategy.h"
#include "os/os.h"

#include <string.h>

HAK_STATIC(sizeof(struct hak_learn_stats) % 8 == 0);
HAK_STATIC((int)HAK_LEARN_FROZEN == (int)HAK_STAGE_FROZEN && (int)HAK_RATING_BARRED == (int)HAK_RIVAL_BARRED);
HAK_STATIC((int)HAK_RATING_COUNT_MAX >= (int)HAK_STRATEGY_COUNT);
HAK_STATIC((int)HAK_STAGE_CHANGE_COUNT_MAX == (int)HAK_HISTORY_MAX);
HAK_STATIC(HAK_STRATEGY_NAME_BYTES == 16);

HAK_EXPORT struct hak_shown hak_learn_shown; /* `hakmem explain -p` reads it from outside */

static int64_t millionths(double x) { return (int64_t)(x * 1e6 + (x < 0 ? -0.5 : 0.5)); }

static void name_set(char name[16], unsigned strategy) {
    memcpy(name, hak_strategy_at(strategy)->name, HAK_STRATEGY_NAME_BYTES);
}

static void changes_fill(struct hak_learn_stats *stats, const struct hak_cycle *cycle) {
    uint32_t count = cycle->changes < HAK_HISTORY_MAX ? cycle->changes : HAK_HISTORY_MAX;
    stats->change_count = cycle->changes;
    stats->change_rows = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct hak_stage_change *from = &cycle->history[(cycle->changes - count + i) % HAK_HISTORY_MAX];
        struct hak_stage_change_stats *row = &stats->change[i];
        row->ms = from->ms;
        row->from = from->from;
        row->to = from->to;
        memcpy(row->reason, hak_reason_name(from->reason), sizeof row->reason);
        name_set(row->strategy, from->strategy);
        row->number[0] = from->number[0];
        row->number[1] = from->number[1];
    }
}

static void ratings_fill(struct hak_learn_stats *stats, const struct hak_tournament *t) {
    for (unsigned i = 0; i < t->count; i++) {
        if (i && t->rival[i].state == HAK_RIVAL_BARRED) continue;
        struct hak_rating *row = &stats->rating[stats->rating_count++];
        struct hak_elo elo = hak_tournament_elo(t, i);
        name_set(row->strategy, i);
        row->gain_millionths = i ? millionths(t->rival[i].gain) : 0;
        row->error_millionths = i ? millionths(t->rival[i].error) : 0;
        row->elo = elo.rating;
        row->elo_error = elo.error;
        row->duels = t->rival[i].duels;
        row->state = t->rival[i].state;
    }
}

static void publish(const struct hak_learn_stats *stats) {
    const uint64_t *from = (const uint64_t *)(const void *)stats;
    uint64_t sequence = hak_load_relaxed(&hak_learn_shown.sequence);
    hak_store_relaxed(&hak_learn_shown.sequence, sequence + 1);
    /* release: pairs with the reader's acquire; who saw a new word sees the number odd, or moved on */
    for (unsigned i = 0; i < sizeof *stats / 8; i++) hak_store_release(&hak_learn_shown.word[i], from[i]);
    hak_store_release(&hak_learn_shown.sequence, sequence + 2);
}

void hak_shown_write(const struct hak_cycle *cycle, const struct hak_measure *last, uint64_t time_ms) {
    static struct hak_learn_stats stats; /* the lock's; too large for the stack of a thread that only calls malloc */
    const struct hak_tournament *t = &cycle->tournament;
    memset(&stats, 0, sizeof stats);
    stats.version = 1;
    stats.pid = hak_os_pid();
    stats.stage = cycle->stage;
    stats.policy = cycle->policy;
    name_set(stats.strategy, cycle->strategy);
    name_set(stats.frozen_strategy, cycle->chosen);
    stats.time_ms = time_ms;
    stats.windows = t->windows;
    stats.duels = t->duels;
    stats.void_duels = t->void_duels;
    stats.noise_millionths = millionths(t->noise);
    stats.gain_millionths = millionths(cycle->claimed);
    stats.gain_error_millionths = millionths(cycle->claimed_error);
    stats.gain_duels = cycle->claimed_duels;
    ratings_fill(&stats, t);
    changes_fill(&stats, cycle);
    stats.window_ms = (uint64_t)(last->seconds * 1000);
    stats.window_work_ns = last->work_ns;
    stats.window_fault_ns = last->faults_ns;
    stats.window_memory_ns = last->memory_ns;
    stats.window_visits = last->visits;
    stats.window_resident_bytes = last->resident_bytes;
    publish(&stats);
}

void hak_shown_reset(void) {
    uint64_t sequence = hak_load_relaxed(&hak_learn_shown.sequence);
    if (sequence % 2) hak_store_release(&hak_learn_shown.sequence, sequence + 1);
}

HAK_EXPORT void hak_learn_stats(struct hak_learn_stats *stats, size_t bytes) {
    enum { TRIES = 1000 };
    struct hak_learn_stats all;
    uint64_t *to = (uint64_t *)(void *)&all;
    bool whole = false;
    for (unsigned i = 0; i < TRIES && !whole; i++) {
        uint64_t before = hak_load_acquire(&hak_learn_shown.sequence);
        for (unsigned k = 0; k < sizeof all / 8; k++) to[k] = hak_load_acquire(&hak_learn_shown.word[k]);
        whole = before % 2 == 0 && hak_load_relaxed(&hak_learn_shown.sequence) == before;
    }
    if (!whole) memset(&all, 0, sizeof all);
    all.version = 1;
    memcpy(stats, &all, bytes < sizeof all ? bytes : sizeof all);
    if (bytes > sizeof all) memset(stats + 1, 0, bytes - sizeof all); /* for a caller that knows more: 0 */
}

/* --- JSON --- */

static const char stage_names[][8] = { "off", "learn", "canary", "frozen" };
static const char policy_names[][8] = { "auto", "learn", "canary", "frozen", "off" };
static const char state_names[][8] = { "in", "aside", "spent", "out", "barred" };

void hak_shown_json(struct hak_text *text, void (*row_end)(void *context), void *context) {
    struct hak_learn_stats stats;
    hak_learn_stats(&stats, sizeof stats);
    hak_text_format(text, "\"learn\": {\n    \"stage\": \"%s\", \"policy\": \"%s\", \"strategy\": \"%s\", \"frozen_strategy\": \"%s\",\n",
                    stage_names[stats.stage % 4], policy_names[stats.stage ? stats.policy % 5 : 4], stats.strategy,
                    stats.frozen_strategy);
    row_end(context);
    hak_text_format(text, "    \"time_ms\": %lu, \"windows\": %lu, \"duels\": %lu, \"void_duels\": %lu, \"noise_millionths\": ",
                    stats.time_ms, stats.windows, stats.duels, stats.void_duels);
    hak_text_i64(text, stats.noise_millionths);
    hak_text_str(text, ",\n    \"gain_millionths\": ");
    hak_text_i64(text, stats.gain_millionths);
    hak_text_str(text, ", \"gain_error_millionths\": ");
    hak_text_i64(text, stats.gain_error_millionths);
    hak_text_format(text, ", \"gain_duels\": %lu,\n", stats.gain_duels);
    row_end(context);
    hak_text_format(text, "    \"window\": {\"ms\": %lu, \"work_ns\": %lu, \"fault_ns\": %lu, \"memory_ns\": %lu, \"visits\": %lu, "
                    "\"resident_bytes\": %lu},\n    \"ratings\": [", stats.window_ms, stats.window_work_ns, stats.window_fault_ns,
                    stats.window_memory_ns, stats.window_visits, stats.window_resident_bytes);
    for (unsigned i = 0; i < stats.rating_count; i++) {
        const struct hak_rating *row = &stats.rating[i];
        hak_text_format(text, "%s\n      {\"strategy\": \"%s\", \"elo\": %d, \"elo_error\": %d, \"gain_millionths\": ", i ? "," : "",
                        row->strategy, row->elo, row->elo_error);
        hak_text_i64(text, row->gain_millionths);
        hak_text_str(text, ", \"error_millionths\": ");
        hak_text_i64(text, row->error_millionths);
        hak_text_format(text, ", \"duels\": %u, \"state\": \"%s\"}", row->duels, state_names[row->state % 5]);
        row_end(context);
    }
    hak_text_format(text, "\n    ],\n    \"changes\": %lu, \"history\": [", stats.change_count);
    for (unsigned i = 0; i < stats.change_rows; i++) {
        const struct hak_stage_change_stats *row = &stats.change[i];
        hak_text_format(text, "%s\n      {\"ms\": %lu, \"from\": \"%s\", \"to\": \"%s\", \"reason\": \"%s\", \"strategy\": \"%s\", "
                        "\"numbers\": [", i ? "," : "", row->ms, stage_names[row->from % 4], stage_names[row->to % 4], row->reason,
                        row->strategy);
        hak_text_i64(text, row->number[0]);
        hak_text_str(text, ", ");
        hak_text_i64(text, row->number[1]);
        hak_text_str(text, "]}");
        row_end(context);
    }
    hak_text_str(text, "\n    ]\n  },\n  ");
    row_end(context);
}
