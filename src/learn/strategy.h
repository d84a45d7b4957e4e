/* strategy.h - complete settings of the knobs, and putting one into force.
 *
 * Owns:      the table (strategies.def), and the setting that a policy file may bring.
 * Borrows:   the options (rules/options.h): a knob is an option, and what the user set is never overridden.
 * Threads:   applying: who holds the learn lock. Readers see each knob old or new; every combination is a legal setting.
 */
#ifndef HAK_LEARN_STRATEGY_H
#define HAK_LEARN_STRATEGY_H

#include "base/attr.h"

enum {
#define HAK_STRATEGY(name, control, what, ...) HAK_STRATEGY_##name,
#include "learn/strategies.def"
#undef HAK_STRATEGY
    HAK_STRATEGY_SAVED, /* what a policy file brought, where no row is the same */
    HAK_STRATEGY_COUNT
};
enum { HAK_KNOBS_MAX = 16, HAK_STRATEGY_NAME_BYTES = 16 };

struct hak_knob {
    uint32_t option; /* its row; 0 (no knob) ends a list */
    uint32_t value;
};
struct hak_strategy {
    char name[HAK_STRATEGY_NAME_BYTES];
    char what[64];
    uint32_t is_control;
    struct hak_knob knob[HAK_KNOBS_MAX]; /* those that differ from the defaults; the last is 0 */
};

const struct hak_strategy *hak_strategy_at(unsigned strategy);

/* The strategy of this name, or HAK_STRATEGY_COUNT. */
unsigned hak_strategy_named(const char *name);

/* Is the option one that strategies turn? */
bool hak_knob_is(unsigned option);

/* What the strategy makes of an option. */
uint64_t hak_strategy_value(unsigned strategy, unsigned option);

/* The setting of a policy file: the row that is the same, else HAK_STRATEGY_SAVED under the file's name for it. */
unsigned hak_strategy_save(const char *name, const struct hak_knob *knobs, unsigned count);

/* Does the strategy differ from all before it in a knob that is not the user's? If not it needs no duels. */
bool hak_strategy_plays(unsigned strategy);

void hak_strategy_apply(unsigned strategy);

/* How long what one of them did is still seen under the other: 0 if they differ only in knobs that act at once. */
uint64_t hak_strategy_memory_ms(unsigned one, unsigned other);

#endif
