/* learn.c - see learn.h. The clock of learning: windows are opened and closed here, the stages are cycle.c's.
 *
 * Owns:      the process's one struct hak_cycle.
 * Calm:      nothing is explored in the first second, for a second after a fork, or while memory is within an eighth of
 *            its limit; then the choice frozen last is in force.
 * Measured:  a window's end costs 2.3 us with one heap (0.9 the sums, 1.0 the duel, 0.4 what is shown), every 50 ms at most.
 */
#include "learn/learn.h"

#include "hakmem/hakmem.h"
#include "heap/heap.h"
#include "learn/big_sites.h"
#include "learn/cycle.h"
#include "learn/lifetime.h"
#include "learn/policy.h"
#include "learn/policy_text.h"
#include "learn/shown.h"
#include "learn/strategy.h"
#include "memory/ahead.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "os/descriptor.h"
#include "rules/options.h"
#include "slab/filled.h"

#include <errno.h>
#include <string.h>

/* The stage policy where HAKMEM_EVO_POLICY says nothing, the one place: who names a policy file wants to learn. Others are
 * left alone until auto has been measured in their kind of program (docs/learning.md). */
static const enum hak_evo_policy evo_default = HAK_EVO_FROZEN, evo_default_with_file = HAK_EVO_AUTO;

enum {
    FIRST_MS = 1000, AFTER_FORK_MS = 1000, LOOK_MS = 1000, LIMIT_MS = 10 * 1000, PAUSE_MS = 200,
    WINDOW_VISITS = 2000, WINDOW_CPU_US = 50 * 1000, WINDOW_MS_MAX = 30 * 1000,
    LOOKS_EACH_CENSUS = 10, CENSUS_CHUNKS_MAX = 512,
};

static struct {
    hak_atomic_u32 lock;
    hak_atomic_u64 due_ms;    /* nothing to do before; read without the lock */
    hak_atomic_u64 fork_ms;
    hak_atomic_u32 epoch;     /* of the process that wrote all this; 0: nobody yet */
    hak_atomic_u32 chosen;    /* the strategy frozen last: what a child keeps */
    hak_atomic_u64 unseen, sites_all; /* bytes that growth took from sites above sites_known, and in all */
    hak_atomic_u32 sites_known;
    /* under the lock: */
    uint32_t applied, pid;
    uint32_t child_pid;       /* not under it: in a forked child, whose it is */
    bool is_begun, is_paused, is_open, is_near_limit;
    uint32_t looks;
    uint64_t start_ms, limit_ms, limit_bytes, pins;
    double pace;              /* ms that usually pass for a byte handed out */
    struct hak_sums opened;
    struct hak_measure last;
    struct hak_cycle cycle;
} learn;

static enum hak_evo_policy evo_policy;

void (*hak_learn_on_shown)(const void *shown, size_t bytes);

static bool lock_try(void) {
    uint32_t seen = hak_load_relaxed(&learn.lock), epoch = hak_load_relaxed(&hak_epoch);
    return seen != epoch && hak_cas(&learn.lock, &seen, epoch); /* an older epoch's holder is gone */
}
static void unlock(void) { hak_store_release(&learn.lock, 0); }

static uint64_t hurried(uint64_t ms) { return ms / HAK_OPT(learn_hurry); }

static uint64_t seed_make(void) {
    return HAK_OPT(learn_seed) ? HAK_OPT(learn_seed) : hak_os_ticks() * 2 + hak_os_pid() * UINT64_C(0x9e3779b97f4a7c15);
}

static void due_in(uint64_t now, uint64_t ms) { hak_store_relaxed(&learn.due_ms, now + ms); }

static void apply(unsigned strategy) {
    if (learn.applied == strategy) return;
    learn.applied = strategy;
    hak_strategy_apply(strategy);
}

/* Puts the cycle's strategy into force; a window opens when what the one before it did is no longer seen. */
static void next_begins(uint64_t now) {
    uint64_t wait = learn.cycle.stage == HAK_STAGE_FROZEN ? 0 : hurried(hak_strategy_memory_ms(learn.applied, learn.cycle.strategy));
    apply(learn.cycle.strategy);
    hak_store_relaxed(&learn.chosen, learn.cycle.chosen);
    learn.is_open = false;
    due_in(now, wait);
}

static void shown_write(uint64_t now) { hak_shown_write(&learn.cycle, &learn.last, now - learn.start_ms); }

static void cycle_make(uint64_t now) {
    uint32_t plays = 0, controls = 0;
    for (unsigned i = 0; i < HAK_STRATEGY_COUNT; i++) {
        plays |= (uint32_t)hak_strategy_plays(i) << i;
        controls |= hak_strategy_at(i)->is_control << i;
    }
    learn.pins = hak_option_pins();
    learn.pid = hak_os_pid();
    hak_cycle_start(&learn.cycle, evo_policy, HAK_STRATEGY_COUNT, plays, controls, (uint32_t)HAK_OPT(learn_hurry), seed_make(), now);
    learn.start_ms = now ? now : 1;
    hak_store_relaxed(&learn.epoch, hak_load_relaxed(&hak_epoch));
    learn.is_begun = learn.is_paused = learn.is_open = learn.is_near_limit = false;
    learn.limit_ms = learn.looks = 0;
    if (hak_learn_on_shown) hak_learn_on_shown(&hak_learn_shown, sizeof hak_learn_shown);
    learn.pace = 0;
    memset(&learn.last, 0, sizeof learn.last);
}

static void child_forgets(void) {
    hak_spare_forget();
    hak_filled_forget();
    hak_ahead_forget();
}

/* Another thread of the parent may have been in the middle of anything here: only the choice, one word, is believed. */
static void child_begins(uint64_t now) {
    unsigned chosen = hak_load_relaxed(&learn.chosen);
    cycle_make(now);
    if (chosen < HAK_STRATEGY_COUNT) hak_cycle_inherit(&learn.cycle, chosen, now);
    learn.applied = HAK_STRATEGY_COUNT; /* whatever the knobs stand at */
    apply(learn.cycle.strategy);
    hak_shown_reset();
    hak_policy_forked();
    if (learn.child_pid != hak_os_pid()) child_forgets(); /* no handler did: a fork without libc */
    shown_write(now);
}

static bool is_calm(uint64_t now) {
    uint64_t forked = hak_load_relaxed(&learn.fork_ms);
    if (forked && now - forked < hurried(AFTER_FORK_MS)) return false;
    if (learn.limit_bytes == SIZE_MAX) return true;
    /* once near it it has to be further off, or a rival would be tried at each turn */
    learn.is_near_limit = learn.last.resident_bytes >= learn.limit_bytes / 8 * (learn.is_near_limit ? 6 : 7);
    return !learn.is_near_limit;
}

/* The user has set an option while the program runs: some strategies may be the same now. */
static void pins_look(uint64_t now) {
    uint32_t barred = 0;
    if (hak_option_pins() == learn.pins) return;
    learn.pins = hak_option_pins();
    if (!hak_spare_is_ours()) hak_store_relaxed(&hak_purge.halvings, 0);
    for (unsigned i = 1; i < HAK_STRATEGY_COUNT; i++) barred |= (uint32_t)!hak_strategy_plays(i) << i;
    hak_cycle_bar(&learn.cycle, barred, now);
    if (learn.cycle.stage != HAK_STAGE_FROZEN) next_begins(now);
}

static void limit_look(uint64_t now) {
    if (now < learn.limit_ms) return;
    learn.limit_ms = now + hurried(LIMIT_MS);
    learn.limit_bytes = hak_os_memory_limit();
    hak_cycle_limit(&learn.cycle, learn.limit_bytes, now);
}

static uint64_t live_count(void) {
    struct hak_census census;
    if (hak_load_relaxed(&hak_chunk_top) > CENSUS_CHUNKS_MAX) return 0;
    hak_census_take(&census);
    uint64_t live = hak_load_relaxed(&hak_large_live_bytes) > 0 ? (uint64_t)hak_load_relaxed(&hak_large_live_bytes) : 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        if ((int64_t)census.live[c] > 0) live += census.live[c] * hak_classes[c].block_bytes;
    return live;
}

/* While FROZEN still learns what is usual, every site that was seen is usual. */
static void sites_look(uint64_t now) {
    uint64_t all = hak_exchange(&learn.sites_all, 0), unseen = hak_exchange(&learn.unseen, 0);
    struct hak_lifetime_stats stats;
    if (hak_cycle_sites(&learn.cycle, unseen, all, now)) return;
    hak_lifetime_stats_get(&stats);
    hak_store_relaxed(&learn.sites_known, stats.site_count);
}

/* FROZEN: a look per second at sums that exist anyway. */
static void frozen_look(uint64_t now) {
    struct hak_sums sums;
    hak_sums_read(&sums, now, evo_policy != HAK_EVO_FROZEN);
    due_in(now, hurried(LOOK_MS));
    if (!learn.is_open) {
        learn.is_open = true;
        learn.opened = sums;
        return;
    }
    uint64_t live = evo_policy == HAK_EVO_AUTO && learn.looks++ % LOOKS_EACH_CENSUS == 0 ? live_count() : 0;
    hak_measure_between(&learn.last, &learn.opened, &sums, 0);
    learn.opened = sums;
    hak_cycle_window(&learn.cycle, &learn.last, live, now);
    sites_look(now);
    if (learn.cycle.stage != HAK_STAGE_FROZEN) next_begins(now);
    shown_write(now);
}

static void window_look(uint64_t now) {
    struct hak_sums sums;
    uint64_t cpu_us = (hurried(WINDOW_CPU_US) > 10000 ? hurried(WINDOW_CPU_US) : 10000) * learn.cycle.window_times;
    uint64_t visits = (hurried(WINDOW_VISITS) > 500 ? hurried(WINDOW_VISITS) : 500) * learn.cycle.window_times;
    hak_sums_read(&sums, now, true);
    learn.last.resident_bytes = sums.resident_bytes;
    if (!learn.is_open) {
        learn.is_open = true;
        learn.opened = sums;
        due_in(now, cpu_us / 1000);
        return;
    }
    uint64_t elapsed = now - learn.opened.time_ms;
    if (sums.cpu_us - learn.opened.cpu_us < cpu_us || sums.visits < learn.opened.visits + visits) {
        if (elapsed > (uint64_t)WINDOW_MS_MAX * learn.cycle.window_times) { /* the program is idle: such a window says nothing */
            hak_cycle_spoilt(&learn.cycle);
            next_begins(now);
        } else {
            due_in(now, elapsed < 40 ? 20 : elapsed > 2000 ? 1000 : elapsed / 2);
        }
        return;
    }
    hak_measure_between(&learn.last, &learn.opened, &sums, learn.pace);
    learn.pace += (learn.last.pace - learn.pace) / (learn.pace > 0 ? 16 : 1);
    unsigned before = learn.applied, stage = learn.cycle.stage;
    hak_cycle_window(&learn.cycle, &learn.last, 0, now);
    if (learn.cycle.strategy != before || learn.cycle.stage != stage) {
        next_begins(now);
    } else { /* the end of one window is the beginning of the next */
        learn.opened = sums;
        due_in(now, cpu_us / 1000);
    }
    shown_write(now);
}

static HAK_COLD void first_window_begins(uint64_t now) {
    if (hak_load_relaxed(&learn.epoch) == 0) cycle_make(learn.start_ms); /* who ends before pays nothing for it */
    learn.is_begun = true;
    hak_cycle_begin(&learn.cycle, now);
    next_begins(now);
    shown_write(now);
}

static HAK_COLD void look(uint64_t now) {
    if (evo_policy != HAK_EVO_FROZEN) limit_look(now); /* what is fixed asks the system nothing */
    pins_look(now);
    bool explores = learn.cycle.stage != HAK_STAGE_FROZEN;
    if (explores && !is_calm(now)) {
        if (!learn.is_paused) hak_cycle_spoilt(&learn.cycle);
        learn.is_paused = true;
        learn.is_open = false;
        struct hak_sums sums;
        hak_sums_read(&sums, now, false);
        learn.last.resident_bytes = sums.resident_bytes;
        apply(learn.cycle.chosen);
        due_in(now, hurried(PAUSE_MS));
        return;
    }
    if (learn.is_paused) {
        learn.is_paused = false;
        next_begins(now);
        return;
    }
    if (explores) window_look(now);
    else frozen_look(now);
}

static HAK_COLD void tick(uint64_t now) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    uint32_t made_in = hak_load_relaxed(&learn.epoch);
    if (HAK_LIKELY((made_in == epoch || made_in == 0) && now < hak_load_relaxed(&learn.due_ms))) return;
    if (!lock_try()) return;
    made_in = hak_load_relaxed(&learn.epoch);
    if (HAK_UNLIKELY(made_in != 0 && made_in != epoch)) child_begins(now);
    if (!learn.is_begun && !learn.start_ms) learn.start_ms = now;
    if (learn.is_begun) look(now);
    else if (now - learn.start_ms < hurried(FIRST_MS)) due_in(learn.start_ms, hurried(FIRST_MS));
    else first_window_begins(now);
    unlock();
}

/* --- from outside --- */

static HAK_COLD enum hak_evo_policy policy_wanted(void) {
    static const char names[][8] = { "auto", "learn", "canary", "frozen", "off" };
    const char *wanted = hak_options.evo_policy;
    enum hak_evo_policy usual = hak_options.policy[0] ? evo_default_with_file : evo_default;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hak_name_same(wanted, names[i])) return HAK_OPT(disable_elo) && i < HAK_EVO_FROZEN ? HAK_EVO_FROZEN : i;
    if (wanted[0]) {
        char bytes[256];
        struct hak_text text = HAK_TEXT(bytes);
        hak_text_str(&text, "hakmem: HAKMEM_EVO_POLICY=");
        hak_text_foreign(&text, wanted, 32);
        hak_text_format(&text, " is none of auto, learn, canary, frozen, off; the default %s is used", names[usual]);
        hak_text_end_line(&text);
        hak_os_note(2, bytes, hak_text_held(&text));
    }
    return HAK_OPT(disable_elo) ? HAK_EVO_FROZEN : usual;
}

/* What an earlier run learnt is in force from the start; in another stage it is where this run's duels begin. */
static void policy_believe(const struct hak_policy *policy) {
    struct hak_knob knobs[HAK_POLICY_ROWS_MAX];
    for (unsigned i = 0; i < policy->knob_count; i++)
        knobs[i] = (struct hak_knob){ policy->knob[i].option, (uint32_t)policy->knob[i].value };
    unsigned saved = hak_strategy_save(policy->strategy, knobs, policy->knob_count);
    uint64_t now = hak_os_clock_ms();
    cycle_make(now);
    for (unsigned i = 0; policy->has_noise && i < policy->rating_count; i++) {
        const struct hak_policy_rating *row = &policy->rating[i];
        unsigned strategy = hak_strategy_named(row->strategy);
        if (strategy < HAK_STRATEGY_COUNT && row->duels && hak_strategy_plays(strategy))
            hak_tournament_believe(&learn.cycle.tournament, strategy, (int32_t)row->elo, (double)policy->noise / 1e6,
                                   row->duels < 64 ? (unsigned)row->duels : 64);
    }
    hak_cycle_resume(&learn.cycle, saved, policy->stage, (double)policy->gain / 1e6, (double)policy->gain_error / 1e6,
                     (unsigned)policy->gain_duels, (unsigned)policy->runs, now);
    apply(learn.cycle.strategy);
    hak_store_relaxed(&learn.chosen, learn.cycle.chosen);
    if (policy->has_spare && hak_spare_is_ours()) hak_store_relaxed(&hak_purge.halvings, policy->halvings);
    hak_policy_ahead(policy, evo_policy == HAK_EVO_FROZEN);
    shown_write(now);
}

HAK_COLD bool hak_learn_start(void) {
    evo_policy = policy_wanted();
    if (evo_policy == HAK_EVO_OFF) return false;
    if (hak_options.policy[0]) {
        learn.pid = hak_os_pid();
        if (!HAK_OPT(disable_bigcache)) hak_policy_room_set(HAK_POLICY_KEEP, &hak_big_sites);
        if (evo_policy != HAK_EVO_FROZEN) {
            hak_spare_start();
            hak_filled_start();
        }
        const struct hak_policy *policy = hak_policy_load();
        if (policy) policy_believe(policy);
    }
    __atomic_store_n(&hak_sweep_on_tick, tick, __ATOMIC_RELEASE);
    return evo_policy != HAK_EVO_FROZEN;
}

void hak_learn_forked(void) { hak_store_relaxed(&learn.fork_ms, hak_os_clock_ms()); }

void hak_learn_in_child(void) {
    if (!hak_options.policy[0]) return;
    learn.child_pid = hak_os_pid();
    child_forgets();
}

/* A child that has not come to its first tick: what it freed and wanted again is its own all the same. One that did next to nothing teaches nothing. */
static bool child_ends(uint32_t made_in) {
    if (learn.child_pid != hak_os_pid() || 1000 * hak_os_usage().cpu_us < HAK_SPARE_CPU_NS) return false;
    if (made_in != 0) child_begins(hak_os_clock_ms());
    return true;
}

/* Under the lock. A child of vfork runs in its parent's memory: what stands here is not its own. */
static int policy_store(const char *path, bool always) {
    uint32_t made_in = hak_load_relaxed(&learn.epoch);
    bool mine = learn.pid == hak_os_pid() && (made_in == 0 || made_in == hak_load_relaxed(&hak_epoch));
    if (!mine && child_ends(made_in)) mine = true;
    if (!mine && !always) return 0;
    if (!mine || made_in == 0) cycle_make(hak_os_clock_ms());
    return hak_policy_store(path, &learn.cycle, always);
}

static bool is_on(void) { return __atomic_load_n(&hak_sweep_on_tick, __ATOMIC_RELAXED) == tick; }

/* A window's end takes a microsecond, a file some milliseconds. */
static bool lock_soon(void) {
    enum { TURNS = 200 }; /* some 20 ms */
    for (unsigned i = 0; i < TURNS; i++) {
        if (lock_try()) return true;
        hak_os_yield(i);
    }
    return false;
}

HAK_COLD void hak_learn_end(void) {
    char path[HAK_OPTION_TEXT_BYTES + 256];
    if (hak_name_same(hak_options.evo_policy, "frozen")) return; /* who asks for that uses a file, and writes none */
    if (!hak_options.policy[0] || !is_on() || !hak_policy_path(path, sizeof path) || !lock_soon()) return;
    int error = policy_store(path, false);
    unlock();
    if (!error || hak_command_is_over(path, error)) return;
    char bytes[192];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "cannot be written: %s%s", hak_policy_error(error), hak_os_sandbox_words(error));
    hak_text_end(&text);
    hak_policy_say(path, bytes);
}

HAK_EXPORT int hak_policy_save(const char *path) {
    char named[HAK_OPTION_TEXT_BYTES + 256];
    if (!is_on()) return ENOTSUP;
    if (!path && (!hak_options.policy[0] || !hak_policy_path(named, sizeof named))) return ENOENT;
    if (!lock_soon()) return EBUSY;
    int error = policy_store(path ? path : named, true);
    unlock();
    return error == 0 ? 0 : error > -0x10000 ? -error : EINVAL;
}

void hak_learn_json(struct hak_text *text, void (*row_end)(void *context), void *context) {
    if (is_on() && hak_load_relaxed(&learn.epoch) == 0 && lock_try()) { /* asked for in its first second */
        if (hak_load_relaxed(&learn.epoch) == 0) {
            cycle_make(hak_os_clock_ms());
            shown_write(learn.start_ms);
        }
        unlock();
    }
    hak_shown_json(text, row_end, context);
}

void hak_learn_site(uint32_t site, uint64_t bytes) {
    if (site == 0) return;
    if (site > hak_load_relaxed(&learn.sites_known)) hak_add(&learn.unseen, bytes);
    hak_add(&learn.sites_all, bytes);
}
