/* policy_text.c - see policy_text.h. */
#include "learn/policy_text.h"

#include "learn/strategy.h"
#include "memory/spare.h"
#include "rules/options.h"
#include "slab/class.h"

#include <string.h>

/* One line being read: fields are taken from the left, `wrong` says what was the first mistake. */
struct line {
    const char *at, *end;
    const char *wrong;
};

static const char stage_names[][8] = { "off", "learn", "canary", "frozen" };
static const char state_names[][8] = { "in", "aside", "out" };
static const char kind_names[HAK_POLICY_KIND_COUNT][8] = { "pool", "keep" };

/* --- fields --- */

/* The next field, up to a space or the line's end; the space is eaten with it and must be followed by something. */
static const char *field(struct line *line, size_t *length) {
    const char *start = line->at;
    while (line->at < line->end && *line->at != ' ') line->at++;
    *length = (size_t)(line->at - start);
    if (!*length && !line->wrong) line->wrong = "a field is missing";
    if (line->at < line->end && ++line->at == line->end && !line->wrong) line->wrong = "it ends with a space";
    return start;
}

static void field_end(struct line *line) {
    if (!line->wrong && line->at != line->end) line->wrong = "it has more fields than it should";
}

static bool same(const char *at, size_t length, const char *word) {
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '+' || c == '-';
}

static void take_name(struct line *line, char *to, size_t room) {
    size_t length;
    const char *at = field(line, &length);
    if (line->wrong) return;
    if (length >= room) {
        line->wrong = "a name is too long";
        return;
    }
    for (size_t i = 0; i < length; i++)
        if (!is_name(at[i])) line->wrong = "a name has a character that names do not have";
    memcpy(to, at, length);
    to[length] = 0;
}

static uint64_t take_number(struct line *line, uint64_t least, uint64_t most) {
    size_t length;
    const char *at = field(line, &length);
    uint64_t number = 0;
    if (line->wrong) return 0;
    for (size_t i = 0; i < length; i++) {
        bool too_large = false;
        if (at[i] < '0' || at[i] > '9') {
            line->wrong = "a number is not a number";
            return 0;
        }
        too_large |= __builtin_mul_overflow(number, 10u, &number);
        too_large |= __builtin_add_overflow(number, (uint64_t)(at[i] - '0'), &number);
        if (too_large) {
            line->wrong = "a number is out of its range";
            return 0;
        }
    }
    if (number < least || number > most || (at[0] == '0' && length > 1)) line->wrong = "a number is out of its range";
    return number;
}

static int64_t take_signed(struct line *line, int64_t most) {
    bool negative = line->at < line->end && *line->at == '-';
    line->at += negative;
    int64_t number = (int64_t)take_number(line, 0, (uint64_t)most);
    return negative ? -number : number;
}

static uint64_t take_hex(struct line *line, size_t digits_max) {
    size_t length;
    const char *at = field(line, &length);
    uint64_t number = 0;
    if (line->wrong) return 0;
    if (length > digits_max) line->wrong = "a number is out of its range";
    for (size_t i = 0; i < length && !line->wrong; i++) {
        char c = at[i];
        if (c >= '0' && c <= '9') number = number << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f') number = number << 4 | (uint64_t)(c - 'a' + 10);
        else line->wrong = "a number is not a number";
    }
    return number;
}

static uint32_t take_word(struct line *line, const char (*words)[8], uint32_t first, uint32_t count) {
    size_t length;
    const char *at = field(line, &length);
    for (uint32_t i = first; i < count && !line->wrong; i++)
        if (same(at, length, words[i])) return i;
    if (!line->wrong) line->wrong = "a word is none of those that may stand there";
    return 0;
}

#define NUMBER_MOST INT64_C(1000000000000000000)

/* --- lines --- */

enum { SEEN_LIBRARY = 1, SEEN_RUNS = 2, SEEN_STAGE = 4, SEEN_STRATEGY = 8, SEEN_GAIN = 16, SEEN_NOISE = 32, SEEN_SPARE = 64, SEEN_FELL = 128, SEEN_DEAR = 256 };

static void once(struct line *line, uint32_t *seen, uint32_t what) {
    if (*seen & what) line->wrong = "it stands there twice";
    *seen |= what;
}

static void knob_line(struct line *line, struct hak_policy *policy) {
    char name[HAK_POLICY_NAME_BYTES];
    take_name(line, name, sizeof name);
    uint64_t value = take_number(line, 0, UINT64_MAX);
    if (line->wrong) return;
    unsigned option = hak_option_index(name);
    if (option == HAK_OPTION_COUNT || !hak_knob_is(option) || strcmp(hak_option_rows[option].name, name) != 0) {
        line->wrong = "there is no such knob";
        return;
    }
    if (value < hak_option_rows[option].min || value > hak_option_rows[option].max || value > UINT32_MAX) {
        line->wrong = "a number is out of its range";
        return;
    }
    for (unsigned i = 0; i < policy->knob_count; i++)
        if (policy->knob[i].option == option) line->wrong = "it stands there twice";
    if (policy->knob_count == HAK_POLICY_ROWS_MAX) line->wrong = "there are too many of these";
    if (!line->wrong) policy->knob[policy->knob_count++] = (struct hak_policy_knob){ option, value };
}

static void rating_line(struct line *line, struct hak_policy *policy) {
    struct hak_policy_rating row;
    memset(&row, 0, sizeof row);
    take_name(line, row.strategy, sizeof row.strategy);
    row.elo = take_signed(line, 100000);
    row.error = take_signed(line, 100000);
    row.duels = take_number(line, 0, UINT32_MAX);
    row.state = take_word(line, state_names, 0, 3);
    for (unsigned i = 0; i < policy->rating_count; i++)
        if (strcmp(policy->rating[i].strategy, row.strategy) == 0) line->wrong = "it stands there twice";
    if (policy->rating_count == HAK_POLICY_ROWS_MAX) line->wrong = "there are too many of these";
    if (!line->wrong) policy->rating[policy->rating_count++] = row;
}

static void history_line(struct line *line, struct hak_policy *policy) {
    struct hak_policy_change row;
    memset(&row, 0, sizeof row);
    row.ms = take_number(line, 0, (uint64_t)NUMBER_MOST);
    row.from = take_word(line, stage_names, 0, 4);
    row.to = take_word(line, stage_names, 0, 4);
    take_name(line, row.reason, sizeof row.reason);
    row.number[0] = take_signed(line, NUMBER_MOST);
    row.number[1] = take_signed(line, NUMBER_MOST);
    if (policy->change_count == HAK_POLICY_ROWS_MAX) line->wrong = "there are too many of these";
    if (!line->wrong) policy->change[policy->change_count++] = row;
}

static void filled_line(struct line *line, struct hak_policy *policy) {
    struct hak_policy_filled row;
    row.block_bytes = (uint32_t)take_number(line, 0, HAK_SLAB_BLOCK_BYTES_MAX);
    row.slabs = (uint32_t)take_number(line, 0, HAK_POLICY_SLABS_MAX);
    row.last = (uint32_t)take_number(line, 0, HAK_POLICY_SLABS_MAX);
    for (unsigned i = 0; i < policy->filled_count; i++)
        if (policy->filled[i].block_bytes == row.block_bytes) line->wrong = "it stands there twice";
    if (policy->filled_count == HAK_POLICY_FILLED_MAX) line->wrong = "there are too many of these";
    if (!line->wrong) policy->filled[policy->filled_count++] = row;
}

static void site_line(struct line *line, struct hak_policy *policy, hak_policy_site_fn *on_site, void *context) {
    struct hak_policy_site site;
    memset(&site, 0, sizeof site);
    site.module = take_hex(line, 16);
    site.offset = take_hex(line, 16);
    site.height = (uint32_t)take_number(line, 0, UINT32_MAX);
    site.class_index = (uint16_t)take_number(line, 0, UINT16_MAX);
    site.kind = (uint16_t)take_word(line, kind_names, 0, HAK_POLICY_KIND_COUNT);
    uint64_t first = site.kind == HAK_POLICY_POOL ? 1 : 1024, second = site.kind == HAK_POLICY_POOL ? 1000 : 600000;
    site.number[0] = take_number(line, 0, first);
    site.number[1] = take_number(line, 0, second);
    site.number[2] = take_number(line, 0, site.kind == HAK_POLICY_POOL ? (uint64_t)1 << 48 : 1024);
    field_end(line);
    if (!line->wrong && !site.module) line->wrong = "a number is out of its range";
    if (!line->wrong && policy->site_count++ == HAK_POLICY_SITES_MAX) line->wrong = "there are too many of these";
    if (!line->wrong && on_site) on_site(&site, context);
}

static void any_line(struct line *line, struct hak_policy *policy, uint32_t *seen, hak_policy_site_fn *on_site, void *context) {
    size_t length;
    const char *keyword = field(line, &length);
    if (line->wrong) return;
    if (same(keyword, length, "site")) {
        site_line(line, policy, on_site, context);
    } else if (same(keyword, length, "knob")) {
        knob_line(line, policy);
    } else if (same(keyword, length, "rating")) {
        rating_line(line, policy);
    } else if (same(keyword, length, "history")) {
        history_line(line, policy);
    } else if (same(keyword, length, "library")) {
        once(line, seen, SEEN_LIBRARY);
        take_name(line, policy->library, sizeof policy->library);
    } else if (same(keyword, length, "runs")) {
        once(line, seen, SEEN_RUNS);
        policy->runs = take_number(line, 1, UINT32_MAX);
    } else if (same(keyword, length, "stage")) {
        once(line, seen, SEEN_STAGE);
        policy->stage = take_word(line, stage_names, 1, 4);
    } else if (same(keyword, length, "strategy")) {
        once(line, seen, SEEN_STRATEGY);
        take_name(line, policy->strategy, sizeof policy->strategy);
    } else if (same(keyword, length, "gain")) {
        once(line, seen, SEEN_GAIN);
        policy->has_gain = true;
        policy->gain = take_signed(line, 100000000);
        policy->gain_error = take_signed(line, 100000000);
        policy->gain_duels = take_number(line, 0, UINT32_MAX);
    } else if (same(keyword, length, "noise")) {
        once(line, seen, SEEN_NOISE);
        policy->has_noise = true;
        policy->noise = take_signed(line, 100000000);
        policy->noise_duels = take_number(line, 0, UINT32_MAX);
    } else if (same(keyword, length, "spare")) {
        once(line, seen, SEEN_SPARE);
        policy->has_spare = true;
        policy->halvings = (uint32_t)take_number(line, 0, HAK_HALVINGS_MAX);
        policy->spare_runs = take_number(line, 1, UINT32_MAX);
    } else if (same(keyword, length, "filled")) {
        filled_line(line, policy);
    } else if (same(keyword, length, "fell")) {
        once(line, seen, SEEN_FELL);
        policy->fell = (uint32_t)take_number(line, 1, HAK_POLICY_FELL_MAX);
    } else if (same(keyword, length, "dear")) {
        once(line, seen, SEEN_DEAR);
        policy->dear = (uint32_t)take_number(line, 1, HAK_POLICY_DEAR_MAX);
    } else {
        line->wrong = "its keyword is none of version 1";
    }
    field_end(line);
}

static void program_line(struct line *line, struct hak_policy *policy, const char *program) {
    size_t length;
    const char *at = field(line, &length);
    if (!line->wrong && !same(at, length, "program")) line->wrong = "this line must name the program";
    take_name(line, policy->program, sizeof policy->program);
    take_name(line, policy->name, sizeof policy->name);
    field_end(line);
    size_t digits = strlen(policy->program);
    for (size_t i = 0; i < digits && !line->wrong; i++)
        if (!((policy->program[i] >= '0' && policy->program[i] <= '9') || (policy->program[i] >= 'a' && policy->program[i] <= 'f')))
            line->wrong = "a build-id is not one";
    if (!line->wrong && digits < 8) line->wrong = "a build-id is not one";
    if (!line->wrong && program && strcmp(policy->program, program) != 0) line->wrong = "it is of another program";
}

/* FNV-1a, Fowler, Noll and Vo: a sum against damage, not against an enemy, who is kept out by the file's owner and mode. */
uint64_t hak_policy_sum(const char *bytes, size_t count) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static void end_line(struct line *line, const char *bytes, const char *start, const char *after) {
    size_t length;
    field(line, &length);
    uint64_t sum = take_hex(line, 16);
    field_end(line);
    if (!line->wrong && sum != hak_policy_sum(bytes, (size_t)(start - bytes))) line->wrong = "the sum at its end is not that of its bytes";
    if (!line->wrong && line->end + 1 != after) line->wrong = "something follows the end";
}

bool hak_policy_read_text(struct hak_policy *policy, const char *bytes, size_t count, const char *program,
                          hak_policy_site_fn *on_site, void *context) {
    static const char first[] = "hakmem-policy ";
    const char *at = bytes, *after = bytes + count;
    uint32_t seen = 0;
    bool ended = false;
    memset(policy, 0, sizeof *policy);
    while (!policy->wrong && at < after) {
        size_t left = (size_t)(after - at), most = left < HAK_POLICY_LINE_MAX ? left : HAK_POLICY_LINE_MAX;
        const char *end = memchr(at, '\n', most);
        struct line line = { at, end, NULL };
        policy->line++;
        if (!end) {
            policy->wrong = left < HAK_POLICY_LINE_MAX ? "it ends in the middle of a line" : "it is longer than 256 bytes";
        } else if (ended) {
            policy->wrong = "something follows the end";
        } else if (policy->line == 1) {
            if ((size_t)(end - at) < sizeof first || memcmp(at, first, sizeof first - 1) != 0)
                policy->wrong = "it is no policy file";
            else if (!same(at + sizeof first - 1, (size_t)(end - at) - (sizeof first - 1), "1"))
                policy->wrong = "it is of another version than 1";
        } else if (policy->line == 2) {
            program_line(&line, policy, program);
        } else if (*at == '#') {
            ; /* for people */
        } else if (end - at > 4 && memcmp(at, "end ", 4) == 0) {
            end_line(&line, bytes, at, after);
            ended = true;
        } else {
            any_line(&line, policy, &seen, on_site, context);
        }
        if (line.wrong) policy->wrong = line.wrong;
        if (end) at = end + 1;
    }
    uint32_t all = SEEN_LIBRARY | SEEN_RUNS | SEEN_STAGE | SEEN_STRATEGY;
    if (!policy->wrong && !ended) policy->wrong = count ? "its end is missing" : "it is empty";
    if (!policy->wrong && (seen & all) != all) policy->wrong = "a line that must be there is missing";
    return !policy->wrong;
}

/* --- writing --- */

static void number(struct hak_text *text, int64_t n) {
    hak_text_char(text, ' ');
    hak_text_i64(text, n);
}

void hak_policy_write_text(struct hak_text *text, const struct hak_policy *policy) {
    hak_text_format(text, "hakmem-policy 1\nprogram %s %s\nlibrary %s\nruns %lu\nstage %s\nstrategy %s\n", policy->program, policy->name,
                    policy->library, policy->runs, stage_names[policy->stage % 4], policy->strategy);
    if (policy->has_gain) {
        hak_text_str(text, "gain");
        number(text, policy->gain);
        number(text, policy->gain_error);
        hak_text_format(text, " %lu\n", policy->gain_duels);
    }
    if (policy->has_noise) {
        hak_text_str(text, "noise");
        number(text, policy->noise);
        hak_text_format(text, " %lu\n", policy->noise_duels);
    }
    if (policy->has_spare) hak_text_format(text, "spare %u %lu\n", policy->halvings, policy->spare_runs);
    if (policy->fell) hak_text_format(text, "fell %u\n", policy->fell);
    if (policy->dear) hak_text_format(text, "dear %u\n", policy->dear);
    for (unsigned i = 0; i < policy->filled_count; i++)
        hak_text_format(text, "filled %u %u %u\n", policy->filled[i].block_bytes, policy->filled[i].slabs, policy->filled[i].last);
    for (unsigned i = 0; i < policy->knob_count; i++)
        hak_text_format(text, "knob %s %lu\n", hak_option_rows[policy->knob[i].option].name, policy->knob[i].value);
    for (unsigned i = 0; i < policy->rating_count; i++) {
        const struct hak_policy_rating *row = &policy->rating[i];
        hak_text_format(text, "rating %s", row->strategy);
        number(text, row->elo);
        number(text, row->error);
        hak_text_format(text, " %lu %s\n", row->duels, state_names[row->state % 3]);
    }
    for (unsigned i = 0; i < policy->change_count; i++) {
        const struct hak_policy_change *row = &policy->change[i];
        hak_text_format(text, "history %lu %s %s %s", row->ms, stage_names[row->from % 4], stage_names[row->to % 4], row->reason);
        number(text, row->number[0]);
        number(text, row->number[1]);
        hak_text_char(text, '\n');
    }
}

static void hex(struct hak_text *text, uint64_t n, unsigned digits_least) {
    hak_text_char(text, ' ');
    for (unsigned digit = 16; digit-- > 1;)
        if (digit < digits_least && n >> 4 * digit == 0) hak_text_char(text, '0');
    hak_text_hex(text, n);
}

void hak_policy_write_site(struct hak_text *text, const struct hak_policy_site *site) {
    hak_text_str(text, "site");
    hex(text, site->module, 16);
    hex(text, site->offset, 1);
    hak_text_format(text, " %u %u %s %lu %lu %lu\n", site->height, (unsigned)site->class_index, kind_names[site->kind % HAK_POLICY_KIND_COUNT],
                    site->number[0], site->number[1], site->number[2]);
}

void hak_policy_write_end(struct hak_text *text) {
    uint64_t sum = hak_policy_sum(text->at, hak_text_held(text));
    hak_text_str(text, "end");
    hex(text, sum, 16);
    hak_text_char(text, '\n');
}
