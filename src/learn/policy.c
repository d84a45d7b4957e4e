/* policy.c - see policy.h. */
#include "learn/policy.h"

#include "hakmem/hakmem.h"
#include "learn/cycle.h"
#include "learn/learn.h"
#include "learn/measure.h"
#include "learn/policy_filled.h"
#include "learn/policy_text.h"
#include "learn/strategy.h"
#include "memory/ahead.h"
#include "memory/huge.h"
#include "memory/spare.h"
#include "os/module.h"
#include "os/os.h"
#include "os/trusted.h"
#include "rules/options.h"
#include "slab/filled.h"

#include <errno.h>
#include <string.h>

enum {
    MODULES_MAX = 1024, PATH_BYTES = 512, KEYS = 2 * HAK_POLICY_SITES_MAX,
    SPARE_SHARE = 400,               /* of the processor time: a quarter of what a trial forgives */
    SPARE_PAID_SHARE = 200,          /* where it is known and not played */
};

struct file {
    char *bytes; /* NULL: none */
    size_t count, mapped;
};

static struct {
    struct hak_policy read;   /* what the file said, if it was believed */
    struct hak_policy scratch[2]; /* the lock's: too large for any thread's stack */
    bool is_read, is_refused; /* refused: it stays as it is */
    bool is_others;           /* `read` is what others wrote since this program began: nothing of it is in force here */
    unsigned halvings;        /* of spare memory, that are in force */
    uint64_t sum;             /* of the file as it was read or written last; 0: there was none */
    struct file file;         /* kept where sites in it wait for a module, or are others' */
    uint64_t given[HAK_POLICY_SITES_MAX / 64]; /* which of its sites, in its order, were given to rooms */
    struct hak_module modules[MODULES_MAX];
    size_t module_count;
} policy_state;

static const struct hak_policy_room *rooms[HAK_POLICY_KIND_COUNT];

static bool put_nowhere(struct hak_policy_site *site, void *context);

void hak_policy_forked(void) {
    for (unsigned kind = 0; kind < HAK_POLICY_KIND_COUNT; kind++)
        if (rooms[kind] && rooms[kind]->note) rooms[kind]->note(put_nowhere);
}

void hak_policy_room_set(enum hak_policy_kind kind, const struct hak_policy_room *room) { rooms[kind] = room; }

/* --- what is said --- */

int (*hak_learn_line_to)(void);

void hak_policy_say(const char *path, const char *what) {
    char bytes[PATH_BYTES + 256];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str(&text, "hakmem: HAKMEM_POLICY: ");
    hak_text_foreign(&text, path, PATH_BYTES);
    hak_text_char(&text, ' ');
    hak_text_str(&text, what);
    hak_text_end_line(&text);
    hak_os_note(hak_learn_line_to ? hak_learn_line_to() : 2, bytes, hak_text_held(&text));
}

const char *hak_policy_error(int error) {
    switch (error) {
    case HAK_TRUST_KIND: return "it is not a regular file";
    case HAK_TRUST_LARGE: return "it is larger than 512 KiB";
    case HAK_TRUST_OPEN: return "others than its owner and group may write to it";
    case HAK_TRUST_OWNER: return "it belongs to another user";
    case -ENOENT: return "no such file or directory";
    case -EACCES: return "permission denied";
    case -EPERM: return "not permitted";
    case -ENOSPC: return "no space left";
    case -EROFS: return "read-only file system";
    case -EDQUOT: return "quota exceeded";
    case -EFBIG: return "file too large";
    case -ENAMETOOLONG: return "name too long";
    case -ENOTDIR: return "not a directory";
    case -ENOMEM: return "memory is short";
    case -EBUSY: return "it is being written";
    case -EPIPE: return "nobody reads it";
    default: return "input or output failed";
    }
}

static void say_ignored(const char *path, uint32_t line, const char *why) {
    char bytes[160];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str(&text, "is ignored: ");
    if (line) hak_text_format(&text, "line %u: ", line);
    hak_text_str(&text, why);
    hak_text_end(&text);
    hak_policy_say(path, bytes);
}

bool hak_policy_path(char *bytes, size_t count) {
    struct hak_text text = { bytes, 0, count };
    hak_path_expand(&text, hak_options.policy);
    return hak_text_end(&text) < count;
}

/* --- sites: from files to addresses and back --- */

static void modules_look(void) { policy_state.module_count = hak_modules(policy_state.modules, MODULES_MAX); }

static const struct hak_module *module_named(uint64_t name) {
    for (size_t i = 0; i < policy_state.module_count; i++)
        if (hak_module_name(&policy_state.modules[i]) == name) return &policy_state.modules[i];
    return NULL;
}

static const struct hak_module *module_around(uint64_t address) {
    for (size_t i = 0; i < policy_state.module_count; i++)
        if (address >= policy_state.modules[i].start && address < policy_state.modules[i].end) return &policy_state.modules[i];
    return NULL;
}

struct reading {
    size_t sites, waiting;
};

static void site_to_room(const struct hak_policy_site *site, void *context) {
    struct reading *reading = context;
    size_t at = reading->sites++;
    const struct hak_module *module = module_named(site->module);
    const struct hak_policy_room *room = rooms[site->kind];
    struct hak_policy_site found = *site;
    if (!module || !room || !room->take) {
        reading->waiting++; /* written back as it is */
        return;
    }
    policy_state.given[at / 64] |= UINT64_C(1) << at % 64;
    found.address = module->base + site->offset;
    if (found.address >= module->start && found.address < module->end) room->take(&found);
}

/* --- reading --- */

static void id_text(char bytes[65]) {
    struct hak_text text = { bytes, 0, 65 };
    const struct hak_module *program = &policy_state.modules[0];
    for (unsigned i = 0; i < program->id_bytes; i++) {
        if (program->id[i] < 16) hak_text_char(&text, '0');
        hak_text_hex(&text, program->id[i]);
    }
    hak_text_end(&text);
}

static const struct hak_policy *text_believe(const char *path, const char *bytes, size_t count, size_t *waiting) {
    char program[65];
    struct hak_policy *policy = &policy_state.read;
    struct reading reading = { 0, 0 };
    modules_look();
    id_text(program);
    if (!hak_policy_read_text(policy, bytes, count, program, NULL, NULL)) {
        say_ignored(path, policy->line, policy->wrong);
        memset(policy, 0, sizeof *policy); /* what stands before the mistake is not written either */
        return NULL;
    }
    hak_policy_read_text(policy, bytes, count, program, site_to_room, &reading);
    *waiting = reading.waiting;
    return policy;
}

static void file_end(struct file *file) {
    if (file->bytes) hak_os_unmap(file->bytes, file->mapped);
    *file = (struct file){ NULL, 0, 0 };
}

/* 0, -errno or HAK_TRUST_*: then there is nothing. */
static int file_read(struct file *file, const char *path) {
    size_t count = 0;
    *file = (struct file){ NULL, 0, 0 };
    int fd = hak_os_open_trusted(path, HAK_POLICY_BYTES_MAX, &count);
    if (fd < 0) return fd;
    file->mapped = count + 1;
    file->bytes = hak_os_map(file->mapped);
    long got = file->bytes ? hak_os_read_all(fd, file->bytes, count) : -ENOMEM;
    hak_os_close(fd);
    if (got < 0) file_end(file);
    else file->count = (size_t)got;
    return got < 0 ? (int)got : 0;
}

const struct hak_policy *hak_policy_load(void) {
    char path[PATH_BYTES];
    size_t waiting = 0;
    struct file file;
    if (!hak_policy_path(path, sizeof path)) {
        say_ignored(path, 0, "its name is too long");
        policy_state.is_refused = true;
        return NULL;
    }
    int error = file_read(&file, path);
    if (error == -ENOENT) return NULL; /* it will be written */
    const struct hak_policy *policy = NULL;
    if (error) say_ignored(path, 0, hak_policy_error(error));
    else policy = text_believe(path, file.bytes, file.count, &waiting);
    policy_state.is_read = policy != NULL;
    policy_state.is_refused = policy == NULL;
    policy_state.halvings = policy && policy->has_spare ? policy->halvings : 0;
    policy_state.sum = policy ? hak_policy_sum(file.bytes, file.count) : 0;
    if (policy && waiting) policy_state.file = file;
    else file_end(&file);
    return policy;
}

/* --- writing --- */

struct writer {
    struct hak_text text;
    size_t sites, read; /* that were written; of the read file's, that were looked at */
    uint64_t *keys;     /* of those that were written, where some wait; NULL: nobody asks, or memory is short */
};

/* The place of the site's key, or where it would stand: at most half of them are taken. */
static uint64_t *key_place(uint64_t *keys, const struct hak_policy_site *site, uint64_t *key) {
    uint64_t of_site = (uint64_t)site->height << 32 | (uint64_t)site->class_index << 8 | site->kind;
    *key = ((site->module ^ site->offset * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9) ^ of_site) * UINT64_C(0x94d049bb133111eb) | 1;
    size_t at = *key >> 40 & (KEYS - 1);
    while (keys[at] && keys[at] != *key) at = (at + 1) & (KEYS - 1);
    return &keys[at];
}

static bool site_put(struct writer *writer, const struct hak_policy_site *site) {
    /* the end needs a line too; what does not fit is left out, for the file is to be believed the next time */
    if (writer->sites >= HAK_POLICY_SITES_MAX || writer->text.used + 2 * HAK_POLICY_LINE_MAX > writer->text.capacity) return false;
    writer->sites++;
    uint64_t key;
    if (writer->keys) {
        uint64_t *place = key_place(writer->keys, site, &key);
        *place = key;
    }
    hak_policy_write_site(&writer->text, site);
    return true;
}

static bool put_from_room(struct hak_policy_site *site, void *context) {
    const struct hak_module *module = module_around(site->address);
    if (!module || !hak_module_name(module)) return false;
    site->module = hak_module_name(module);
    site->offset = site->address - module->base;
    return site_put(context, site);
}

/* In a forked child, where the loader may not be asked: what is loaded since the last look may have a name. */
static bool put_nowhere(struct hak_policy_site *site, void *context) {
    (void)context;
    const struct hak_module *module = module_around(site->address);
    return !module || hak_module_name(module);
}

struct put_of_kind {
    struct writer *writer;
    enum hak_policy_kind kind;
};
static bool put_with_kind(struct hak_policy_site *site, void *context) {
    struct put_of_kind *put = context;
    site->kind = (uint16_t)put->kind;
    return put_from_room(site, put->writer);
}

/* A module that was loaded since the start got none of its sites, nor did rooms get others'; but they may have learnt the same one. */
static void put_waiting(const struct hak_policy_site *site, void *context) {
    struct writer *writer = context;
    size_t at = writer->read++;
    uint64_t key;
    if (policy_state.given[at / 64] >> at % 64 & 1) return;
    bool is_written = writer->keys ? *key_place(writer->keys, site, &key) != 0 : !policy_state.is_others && module_named(site->module) != NULL;
    if (!is_written) site_put(writer, site);
}

static void knobs_fill(struct hak_policy *policy, unsigned strategy) {
    policy->knob_count = 0;
    for (unsigned option = 1; option < HAK_OPTION_COUNT; option++)
        if (hak_knob_is(option))
            policy->knob[policy->knob_count++] = (struct hak_policy_knob){ option, hak_strategy_value(strategy, option) };
}

static int64_t millionths(double x) { return (int64_t)(x * 1e6 + (x < 0 ? -0.5 : 0.5)); }

static void ratings_fill(struct hak_policy *policy, const struct hak_tournament *t) {
    static const uint8_t states[] = { [HAK_RIVAL_IN] = 0, [HAK_RIVAL_ASIDE] = 1, [HAK_RIVAL_SPENT] = 1, [HAK_RIVAL_OUT] = 2 };
    policy->rating_count = 0;
    for (unsigned i = 0; i < t->count; i++) {
        if (t->rival[i].state == HAK_RIVAL_BARRED || t->rival[i].is_control) continue;
        struct hak_policy_rating *row = &policy->rating[policy->rating_count++];
        struct hak_elo elo = hak_tournament_elo(t, i);
        memset(row, 0, sizeof *row);
        memcpy(row->strategy, hak_strategy_at(i)->name, HAK_STRATEGY_NAME_BYTES);
        row->elo = elo.rating;
        row->error = elo.error;
        row->duels = t->rival[i].duels;
        row->state = i ? states[t->rival[i].state] : 0;
    }
}

static void changes_fill(struct hak_policy *policy, const struct hak_cycle *cycle) {
    uint32_t count = cycle->changes < HAK_HISTORY_MAX ? cycle->changes : HAK_HISTORY_MAX;
    policy->change_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct hak_stage_change *from = &cycle->history[(cycle->changes - count + i) % HAK_HISTORY_MAX];
        struct hak_policy_change *row = &policy->change[i];
        memset(row, 0, sizeof *row);
        row->ms = from->ms;
        row->from = from->from;
        row->to = from->to;
        memcpy(row->reason, hak_reason_name(from->reason), sizeof row->reason);
        row->number[0] = from->number[0];
        row->number[1] = from->number[1];
    }
}

bool hak_spare_is_ours(void) { return !hak_option_is_pinned(HAK_O_free_max_mb) && !hak_option_is_pinned(HAK_O_free_share); }

/* How much less free memory would have done: halved once more a run at most, whole again as soon as that cost too much. */
static bool spare_fill(struct hak_policy *policy, const struct hak_cycle *cycle) {
    uint64_t cpu_ns = 1000 * hak_os_usage().cpu_us;
    if (cycle->policy == HAK_EVO_FROZEN || cpu_ns < HAK_SPARE_CPU_NS || !hak_spare_is_ours()) return false;
    unsigned now = policy_state.halvings;
    unsigned played = hak_spare_choose(now, cpu_ns, HAK_FAULT_NS + HAK_PAGE_NS, SPARE_SHARE);
    struct hak_spare_paid paid = hak_spare_paid(cpu_ns);
    unsigned chosen = hak_spare_check(now, played, &paid, cpu_ns, HAK_FAULT_NS + HAK_PAGE_NS, SPARE_PAID_SHARE);
    if (policy_state.is_others && chosen == now) return false; /* theirs stands */
    policy->spare_runs = policy->has_spare && chosen >= now && policy->spare_runs < UINT32_MAX ? policy->spare_runs + 1 : 1;
    policy->has_spare |= chosen > 0;
    policy->halvings = chosen;
    return chosen != now;
}

static bool ahead_is_ours(void) { return HAK_OPT(huge_from_mb) != 0 && !hak_option_is_pinned(HAK_O_huge_from_mb); }

/* Which slabs this run filled. Under a limit of address space they are smaller. */
static bool filled_fill(struct hak_policy *policy, const struct hak_cycle *cycle) {
    uint32_t seen[HAK_CLASS_COUNT];
    if (cycle->policy == HAK_EVO_FROZEN || 1000 * hak_os_usage().cpu_us < HAK_SPARE_CPU_NS || !ahead_is_ours() || hak_region.is_limited) return false;
    hak_filled_look();
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) seen[c] = hak_filled_slabs(c);
    bool news = hak_ahead_was_tried() && hak_policy_tried(policy, hak_ahead_was_dear());
    return hak_policy_filled(policy, seen, hak_os_clock_ms()) || news;
}

void hak_policy_ahead(const struct hak_policy *policy, bool is_frozen) {
    struct hak_policy_known known;
    uint64_t granules = 0;
    if (!ahead_is_ours()) return;
    hak_policy_known_of(policy, &known);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        hak_filled_believe(c, known.known[c]);
        granules += (uint64_t)known.known[c] * hak_classes[c].granules;
    }
    granules += known.known[0];
    hak_store_relaxed(&hak_ahead_large, known.known[0]);
    if (hak_policy_tries(policy, is_frozen, hak_os_clock_ms())) hak_ahead_start((uint32_t)(granules / HAK_HALF_GRANULES));
}

/* Anything of strategies that the file did not say. What earlier runs froze stays so until the trial that looks at it again is over. */
static bool has_learnt(const struct hak_cycle *cycle) {
    bool is_checked = cycle->is_check && cycle->stage == HAK_STAGE_CANARY;
    return cycle->tournament.windows > 0 || (cycle->trial.duels > 0 && !is_checked);
}

static bool policy_fill(struct hak_policy *policy, const struct hak_cycle *cycle) {
    const struct hak_tournament *t = &cycle->tournament;
    *policy = policy_state.read; /* what this run did not learn anew stays */
    id_text(policy->program);
    hak_program_name(policy->name, sizeof policy->name);
    memcpy(policy->library, HAKMEM_VERSION, sizeof HAKMEM_VERSION);
    policy->runs = policy_state.is_read && policy->runs < UINT32_MAX ? policy->runs + 1 : 1;
    /* what was never decided is not frozen: the next run is to learn */
    uint32_t stage = cycle->stage == HAK_STAGE_FROZEN && !cycle->stay_ms ? HAK_STAGE_LEARN : cycle->stage;
    if (!policy_state.is_read || (has_learnt(cycle) && (!policy_state.is_others || stage >= policy->stage))) {
        policy->stage = stage;
        policy->has_gain = cycle->claimed_duels > 0;
        policy->gain = millionths(cycle->claimed);
        policy->gain_error = millionths(cycle->claimed_error);
        policy->gain_duels = cycle->claimed_duels;
        unsigned strategy = cycle->stage == HAK_STAGE_CANARY ? cycle->trial.champion : cycle->chosen;
        memcpy(policy->strategy, hak_strategy_at(strategy)->name, HAK_STRATEGY_NAME_BYTES);
        knobs_fill(policy, strategy);
    }
    if (!policy_state.is_read || (t->duels && (!policy_state.is_others || t->duels >= policy->noise_duels))) { /* else those of earlier runs stand */
        policy->has_noise = t->duels > 0;
        policy->noise = millionths(t->noise);
        policy->noise_duels = t->duels;
        ratings_fill(policy, t);
    }
    changes_fill(policy, cycle);
    bool news = filled_fill(policy, cycle);
    return spare_fill(policy, cycle) || news;
}

/* What rooms know, and the read file's sites that could not be given to any. Says whether it is news. */
static bool sites_write(struct writer *writer) {
    bool news = false;
    writer->keys = policy_state.file.bytes ? hak_os_map(KEYS * sizeof *writer->keys) : NULL;
    for (unsigned kind = 0; kind < HAK_POLICY_KIND_COUNT; kind++) {
        struct put_of_kind put = { writer, kind };
        if (rooms[kind] && rooms[kind]->give) news |= rooms[kind]->give(put_with_kind, &put);
    }
    if (policy_state.file.bytes)
        hak_policy_read_text(&policy_state.scratch[1], policy_state.file.bytes, policy_state.file.count, NULL, put_waiting, writer);
    if (writer->keys) hak_os_unmap(writer->keys, KEYS * sizeof *writer->keys);
    return news;
}

/* All of the file, into the writer. Says whether it is news. */
static bool text_write(struct writer *writer, const struct hak_cycle *cycle) {
    struct hak_policy *policy = &policy_state.scratch[0];
    writer->text.used = writer->sites = writer->read = 0;
    modules_look();
    bool news = policy_fill(policy, cycle);
    hak_policy_write_text(&writer->text, policy);
    news |= sites_write(writer);
    news |= has_learnt(cycle);
    hak_policy_write_end(&writer->text);
    return news;
}

/* --- others that run at the same time: workers of one server, which end within a millisecond --- */

/* What is there was written by others since it was read or written here: what this run does not know better stays as they wrote it. 1: so it
 * is; 0: it is as it was, or there is none; -1: it is not believed. */
static int others_take(const char *path) {
    struct file file;
    char program[65];
    int error = file_read(&file, path);
    if (error == HAK_TRUST_LARGE || error == HAK_TRUST_OPEN || error == HAK_TRUST_OWNER) {
        say_ignored(path, 0, hak_policy_error(error));
        return -1;
    }
    if (error) return 0; /* it is written anew, or that says why not */
    if (policy_state.sum == hak_policy_sum(file.bytes, file.count)) {
        file_end(&file);
        return 0;
    }
    struct hak_policy *theirs = &policy_state.scratch[1];
    id_text(program);
    if (!hak_policy_read_text(theirs, file.bytes, file.count, program, NULL, NULL)) {
        say_ignored(path, theirs->line, theirs->wrong);
        file_end(&file);
        return -1;
    }
    file_end(&policy_state.file);
    policy_state.read = *theirs;
    policy_state.file = file;
    policy_state.is_read = policy_state.is_others = true;
    memset(policy_state.given, 0, sizeof policy_state.given);
    return 1;
}

/* Under the folder's lock. */
static int store(struct writer *writer, const char *path, const struct hak_cycle *cycle, bool is_named_by_option, bool always) {
    int others = is_named_by_option && !policy_state.is_refused ? others_take(path) : 0;
    if (others < 0 && !always) return 0;
    if (others > 0) text_write(writer, cycle);
    int error = hak_os_replace_file(path, writer->text.at, hak_text_held(&writer->text));
    if (!error && is_named_by_option) policy_state.sum = hak_policy_sum(writer->text.at, hak_text_held(&writer->text));
    return error;
}

int hak_policy_store(const char *path, const struct hak_cycle *cycle, bool always) {
    if (policy_state.is_refused && !always) return 0;
    char named[PATH_BYTES];
    bool is_named_by_option = hak_options.policy[0] && hak_policy_path(named, sizeof named) && strcmp(path, named) == 0;
    struct writer writer = { .text = { hak_os_map(HAK_POLICY_BYTES_MAX), 0, HAK_POLICY_BYTES_MAX } };
    int error = 0;
    if (!writer.text.at) return -ENOMEM;
    if (text_write(&writer, cycle) || always) {
        int lock = is_named_by_option ? hak_os_folder_lock(path) : -1;
        error = store(&writer, path, cycle, is_named_by_option, always);
        hak_os_folder_unlock(lock);
    }
    hak_os_unmap(writer.text.at, HAK_POLICY_BYTES_MAX);
    return error;
}
