/* options.c - read the options from the environment, and set and get them by name.
 *
 * Owns:      hak_options, the process's only copy.
 * Borrows:   write(2) and AT_SECURE (os/os.h).
 * Threads:   hak_options_load: one, at start. Set and get: any; a number is one relaxed word. Texts are START
 *            options, so they never change under a reader. Steer: one at a time for each row (learn's lock; limit.c's turns), beside any of set.
 * Invariant: every number lies between its row's min and max; what the user has set last is what stands, whatever
 *            is steered at the same time.
 */
#include "rules/options.h"

#include "base/text.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

#define HAK_OPTION(id, usual, least, most, when, what)                          \
    HAK_STATIC((least) <= (usual) && (usual) <= (most));                        \
    HAK_STATIC(sizeof(#id) <= sizeof(hak_option_rows[0].name));
#define HAK_OPTION_TEXT(id, when, what)                                         \
    HAK_STATIC(HAK_OPTION_##when == HAK_OPTION_START);                          \
    HAK_STATIC(sizeof(#id) <= sizeof(hak_option_rows[0].name));
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT

struct hak_options hak_options = {
#define HAK_OPTION(name, default_, min, max, when, what) .name = (default_),
#define HAK_OPTION_TEXT(name, when, what) .name = "",
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT
};

#define OFFSET(name) (uint16_t)offsetof(struct hak_options, name)
const struct hak_option_row hak_option_rows[HAK_OPTION_COUNT] = {
#define HAK_OPTION(name, default_, min, max, when, what) \
    { #name, OFFSET(name), 0, HAK_OPTION_##when, (default_), (min), (max) },
#define HAK_OPTION_TEXT(name, when, what) { #name, OFFSET(name), 1, HAK_OPTION_##when, 0, 0, 0 },
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT
};

/* What the user set, beside the fields: a steering thread that was overtaken puts it back from here. */
static uint64_t pinned, pinned_value[HAK_OPTION_COUNT];

static const char prefix[] = "HAKMEM_";
enum { PREFIX_BYTES = sizeof(prefix) - 1, NAME_BYTES_MAX = 64, VALUE_SHOWN_MAX = 96 };

/* Variables with our prefix that others read: the tool finds the library by this one. */
static const char known_elsewhere[][8] = { "LIB" };

static uint64_t *number_of(const struct hak_option_row *row) {
    return (uint64_t *)(void *)((char *)&hak_options + row->offset);
}

static char *text_of(const struct hak_option_row *row) {
    return (char *)&hak_options + row->offset;
}

static void number_pin(const struct hak_option_row *row, uint64_t number) {
    unsigned index = (unsigned)(row - hak_option_rows);
    /* seq_cst, all three: in hak_option_steer() the pin is looked for after the field was written */
    __atomic_store_n(&pinned_value[index], number, __ATOMIC_SEQ_CST);
    __atomic_fetch_or(&pinned, UINT64_C(1) << index, __ATOMIC_SEQ_CST);
    __atomic_store_n(number_of(row), number, __ATOMIC_SEQ_CST);
}

static const struct hak_option_row *row_find(const char *name) {
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        if (hak_name_same(hak_option_rows[i].name, name))
            return &hak_option_rows[i];
    return NULL;
}

/* NULL when no name is so near that it can be meant: a third of its letters differ. */
static const struct hak_option_row *row_find_near(const char *name) {
    const struct hak_option_row *best = NULL;
    unsigned best_distance = 0;
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const char *candidate = hak_option_rows[i].name;
        unsigned letters = 0;
        while (candidate[letters])
            letters++;
        unsigned distance = hak_name_distance(name, candidate);
        if (distance <= letters / 3 + 1 && (!best || distance < best_distance)) {
            best = &hak_option_rows[i];
            best_distance = distance;
        }
    }
    return best;
}

/* 0, EINVAL (no number), or ERANGE. Digits only; a switch also takes its words. */
static int number_parse(const struct hak_option_row *row, const char *value, uint64_t *number) {
    static const char words[2][3][8] = { { "off", "false", "no" }, { "on", "true", "yes" } };
    if (row->min == 0 && row->max == 1)
        for (unsigned on = 0; on < 2; on++)
            for (unsigned i = 0; i < 3; i++)
                if (hak_name_same(value, words[on][i])) {
                    *number = on;
                    return 0;
                }

    bool negative = *value == '-', overflow = false;
    uint64_t n = 0;
    value += negative;
    if (!*value)
        return EINVAL;
    for (; *value; value++) {
        if (*value < '0' || *value > '9')
            return EINVAL;
        overflow |= __builtin_mul_overflow(n, 10u, &n);
        overflow |= __builtin_add_overflow(n, (uint64_t)(*value - '0'), &n);
    }
    if (overflow || (negative && n) || n < row->min || n > row->max)
        return ERANGE;
    *number = n;
    return 0;
}

/* --- messages: one line each ------------------------------------------------------------------ */

static void say(struct hak_text *text) {
    hak_text_end_line(text);
    hak_os_note(2, text->at, hak_text_held(text));
}

static void text_variable(struct hak_text *text, const char *name) {
    hak_text_str(text, prefix);
    for (; *name; name++)
        hak_text_char(text, *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name);
}

static HAK_COLD void unknown_say(const char *name) {
    char bytes[512];
    struct hak_text text = HAK_TEXT(bytes);
    const struct hak_option_row *near = row_find_near(name);
    hak_text_format(&text, "hakmem: unknown option %s", prefix);
    hak_text_foreign(&text, name, NAME_BYTES_MAX);
    if (near) {
        hak_text_str(&text, "; did you mean ");
        text_variable(&text, near->name);
        hak_text_char(&text, '?');
    } else {
        hak_text_str(&text, "; 'hakmem options' lists those there are");
    }
    say(&text);
}

static HAK_COLD void value_wrong_say(const struct hak_option_row *row, const char *value) {
    char bytes[512];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str(&text, "hakmem: ");
    text_variable(&text, row->name);
    hak_text_char(&text, '=');
    hak_text_foreign(&text, value, VALUE_SHOWN_MAX);
    if (row->is_text)
        hak_text_format(&text, " is longer than %d bytes; it is ignored", HAK_OPTION_TEXT_BYTES - 1);
    else
        hak_text_format(&text, " is not a number from %lu to %lu; the default %lu is used", row->min, row->max,
                        row->default_);
    say(&text);
}

/* --- start ------------------------------------------------------------------------------------- */

static bool text_set(const struct hak_option_row *row, const char *value) {
    size_t length = 0;
    while (length < HAK_OPTION_TEXT_BYTES && value[length])
        length++;
    if (length == HAK_OPTION_TEXT_BYTES)
        return false;
    for (size_t i = 0; i <= length; i++)
        text_of(row)[i] = value[i];
    return true;
}

static bool is_known_elsewhere(const char *name) {
    for (unsigned i = 0; i < sizeof(known_elsewhere) / sizeof(known_elsewhere[0]); i++)
        if (hak_name_same(name, known_elsewhere[i]))
            return true;
    return false;
}

/* The name of `NAME=value` behind the prefix, upper case as it must be in the environment, or false. */
static bool name_read(const char *entry, char name[NAME_BYTES_MAX + 2], const char **value) {
    for (unsigned i = 0; i < PREFIX_BYTES; i++)
        if (entry[i] != prefix[i])
            return false;
    size_t length = 0;
    const char *from = entry + PREFIX_BYTES;
    for (; from[length] && from[length] != '='; length++)
        if (length <= NAME_BYTES_MAX)
            name[length] = from[length];
    if (from[length] != '=')
        return false; /* not a variable at all */
    name[length <= NAME_BYTES_MAX ? length : NAME_BYTES_MAX + 1] = 0;
    *value = from + length + 1;
    return true;
}

/* Environment names have one spelling: HAKMEM_stats is not HAKMEM_STATS for any other program either. */
static bool is_upper(const char *name) {
    for (; *name; name++)
        if (*name >= 'a' && *name <= 'z')
            return false;
    return true;
}

HAK_COLD void hak_options_load(char **environment) {
    HAK_STATIC(HAK_OPTION_COUNT <= 64);
    uint64_t seen = 0; /* of a variable that is there twice the first counts, as for getenv */
    if (!environment || hak_os_secure())
        return;
    for (; *environment; environment++) {
        char name[NAME_BYTES_MAX + 2];
        const char *value;
        if (!name_read(*environment, name, &value))
            continue;
        const struct hak_option_row *row = is_upper(name) ? row_find(name) : NULL;
        if (!row) {
            if (!is_known_elsewhere(name))
                unknown_say(name);
            continue;
        }
        uint64_t bit = (uint64_t)1 << (row - hak_option_rows), number;
        if (seen & bit)
            continue;
        seen |= bit;
        if (row->is_text) {
            if (!text_set(row, value))
                value_wrong_say(row, value);
        } else if (number_parse(row, value, &number) == 0) {
            number_pin(row, number);
        } else {
            value_wrong_say(row, value);
        }
    }
    if (hak_options.minimal) {
        static const char off[] = "off";
        hak_options.disable_bigcache = hak_options.disable_elo = hak_options.disable_lifetimes = 1;
        for (unsigned i = 0; i < sizeof(off); i++)
            hak_options.evo_policy[i] = off[i];
        hak_options.policy[0] = 0;
    }
}

/* --- while it runs ------------------------------------------------------------------------------ */

static const struct hak_option_row *row_named(const char *name) {
    if (!name)
        return NULL;
    for (unsigned i = 0;; i++) {
        if (i == PREFIX_BYTES)
            return row_find(name + PREFIX_BYTES);
        char c = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 'a' + 'A') : name[i];
        if (c != prefix[i])
            return row_find(name);
    }
}

unsigned hak_option_index(const char *name) {
    const struct hak_option_row *row = row_named(name);
    return row ? (unsigned)(row - hak_option_rows) : (unsigned)HAK_OPTION_COUNT;
}

uint64_t hak_option_pins(void) {
    return __atomic_load_n(&pinned, __ATOMIC_SEQ_CST);
}

bool hak_option_is_pinned(unsigned index) {
    return hak_option_pins() >> index & 1;
}

bool hak_option_steer(unsigned index, uint64_t value) {
    const struct hak_option_row *row = &hak_option_rows[index];
    if (index >= HAK_OPTION_COUNT || row->is_text || row->when != HAK_OPTION_ANY || value < row->min || value > row->max ||
        hak_option_is_pinned(index))
        return false;
    __atomic_store_n(number_of(row), value, __ATOMIC_SEQ_CST);
    if (HAK_LIKELY(!hak_option_is_pinned(index)))
        return true;
    uint64_t wanted; /* the user came between: what stands at the end is the last that he wrote */
    do {
        wanted = __atomic_load_n(&pinned_value[index], __ATOMIC_SEQ_CST);
        __atomic_store_n(number_of(row), wanted, __ATOMIC_SEQ_CST);
    } while (wanted != __atomic_load_n(&pinned_value[index], __ATOMIC_SEQ_CST));
    return false;
}

HAK_EXPORT int hak_option_set(const char *name, const char *value) {
    const struct hak_option_row *row = row_named(name);
    uint64_t number = 0;
    if (!row)
        return ENOENT;
    if (row->when == HAK_OPTION_START)
        return EPERM;
    int error = value ? number_parse(row, value, &number) : EINVAL;
    if (!error)
        number_pin(row, number);
    return error;
}

HAK_EXPORT size_t hak_option_get(const char *name, char *bytes, size_t count) {
    const struct hak_option_row *row = row_named(name);
    struct hak_text text = { bytes, 0, bytes ? count : 0 };
    if (row && row->is_text)
        hak_text_str(&text, text_of(row));
    else if (row)
        hak_text_u64(&text, __atomic_load_n(number_of(row), __ATOMIC_RELAXED));
    return hak_text_end(&text);
}

bool hak_command_is_over(const char *path, int error) {
    return (error == ENOENT || error == -ENOENT) && strstr(path, "/hakmem-run."); /* tools/hakmem/src/cmd/reports.rs */
}
