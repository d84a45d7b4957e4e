/* options.h - the options of options.def: one plain field each, and a table that reads and writes them by name.
 *
 * The fields hold their defaults before anything has run, so that an allocation before hak_options_load()
 * is served by them. START options do not change after it; ANY options may change at any time, so they are
 * read by HAK_OPT(name).
 */
#ifndef HAK_RULES_OPTIONS_H
#define HAK_RULES_OPTIONS_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HAK_OPTION_TEXT_BYTES = 256 };

struct hak_options {
#define HAK_OPTION(name, default_, min, max, when, what) uint64_t name;
#define HAK_OPTION_TEXT(name, when, what) char name[HAK_OPTION_TEXT_BYTES];
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT
};
extern struct hak_options hak_options;

/* A numeric option's value now. Relaxed: an option orders nothing. */
#define HAK_OPT(name) __atomic_load_n(&hak_options.name, __ATOMIC_RELAXED)

enum hak_option_when { HAK_OPTION_START, HAK_OPTION_ANY };

/* The row; the name is an inline array, so that the table needs no relocations at start. */
struct hak_option_row {
    char name[24];
    uint16_t offset; /* of its field in struct hak_options */
    uint8_t is_text;
    uint8_t when;
    uint64_t default_, min, max;
};
enum {
#define HAK_OPTION(name, default_, min, max, when, what) HAK_O_##name,
#define HAK_OPTION_TEXT(name, when, what) HAK_O_##name,
#include "rules/options.def"
#undef HAK_OPTION
#undef HAK_OPTION_TEXT
    HAK_OPTION_COUNT
};
extern const struct hak_option_row hak_option_rows[HAK_OPTION_COUNT];

/* --- for src/learn and src/memory/limit.c: settings that nobody asked for ---
 * A row that the environment or hak_option_set() has set is pinned: it is the user's, for good. */
bool hak_option_is_pinned(unsigned index);
uint64_t hak_option_pins(void); /* all of them, a bit for each row */

/* Sets a numeric ANY option unless it is pinned or the value is outside its range; says whether it is set now. */
bool hak_option_steer(unsigned index, uint64_t value);

/* The row of a name, with or without HAKMEM_, in either case; HAK_OPTION_COUNT: there is none. */
unsigned hak_option_index(const char *name);

/* The file could not be written because the folder that a `hakmem run` had made for it is gone: that command is over, and nobody
 * misses what a process that outlives it had to say. `error` is an errno, of either sign. */
bool hak_command_is_over(const char *path, int error);

/* Takes the HAKMEM_* variables of the environment (which may be NULL), once, before a second thread is there.
 * What is wrong is said on one line each, and the default stands. In a program that runs with more rights than
 * its caller the environment is ignored. */
void hak_options_load(char **environment);

#ifdef __cplusplus
}
#endif
#endif
