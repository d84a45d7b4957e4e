/* strategy.c - see strategy.h. */
#include "learn/strategy.h"

#include "base/text.h"
#include "rules/options.h"

#define K(option, value) { HAK_O_##option, (value) },
#define HAK_STRATEGY(id, control, text, ...)                \
    HAK_STATIC(sizeof(#id) <= HAK_STRATEGY_NAME_BYTES);     \
    HAK_STATIC(sizeof(text) <= sizeof(((struct hak_strategy *)0)->what));
#include "learn/strategies.def"
#undef HAK_STRATEGY

HAK_STATIC(HAK_STRATEGY_baseline == 0 && HAK_STRATEGY_COUNT <= 16);

static const struct hak_strategy rows[HAK_STRATEGY_SAVED] = {
#define HAK_STRATEGY(id, control, text, ...) { #id, text, control, { __VA_ARGS__ } },
#include "learn/strategies.def"
#undef HAK_STRATEGY
};
static struct hak_strategy saved_row = { "saved", "what a policy file brought", 0, { { 0, 0 } } };

const struct hak_strategy *hak_strategy_at(unsigned strategy) {
    return strategy < HAK_STRATEGY_SAVED ? &rows[strategy] : &saved_row;
}

unsigned hak_strategy_named(const char *name) {
    unsigned i = 0;
    while (i < HAK_STRATEGY_COUNT && !hak_name_same(hak_strategy_at(i)->name, name)) i++;
    return i;
}

#define KNOB(option) (UINT64_C(1) << HAK_O_##option)
#undef K
#define K(option, value) | KNOB(option)
#define HAK_STRATEGY(id, control, text, ...) __VA_ARGS__
static const uint64_t knobs_all = 0
#include "learn/strategies.def"
    ;
#undef HAK_STRATEGY

bool hak_knob_is(unsigned option) { return option < HAK_OPTION_COUNT && (knobs_all >> option & 1); }

static uint64_t value_in(const struct hak_knob *knobs, unsigned option) {
    for (; knobs->option; knobs++)
        if (knobs->option == option) return knobs->value;
    return hak_option_rows[option].default_;
}

uint64_t hak_strategy_value(unsigned strategy, unsigned option) { return value_in(hak_strategy_at(strategy)->knob, option); }

static bool same(const struct hak_knob *a, const struct hak_knob *b, bool but_pinned) {
    for (uint64_t left = knobs_all & ~(but_pinned ? hak_option_pins() : 0); left; left &= left - 1) {
        unsigned option = (unsigned)__builtin_ctzll(left);
        if (value_in(a, option) != value_in(b, option)) return false;
    }
    return true;
}

/* The row whose name that is, cut off where a row's would be. */
static unsigned named_beginning(const char *name) {
    char bytes[HAK_STRATEGY_NAME_BYTES];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_str(&text, name);
    hak_text_end(&text);
    return hak_strategy_named(bytes);
}

unsigned hak_strategy_save(const char *name, const struct hak_knob *knobs, unsigned count) {
    struct hak_strategy *saved = &saved_row;
    unsigned used = 0;
    for (unsigned i = 0; i < count && used < HAK_KNOBS_MAX - 1; i++)
        if (knobs[i].value != hak_option_rows[knobs[i].option].default_) saved->knob[used++] = knobs[i];
    saved->knob[used].option = 0;
    for (unsigned i = 0; i < HAK_STRATEGY_SAVED; i++)
        if (!hak_strategy_at(i)->is_control && same(hak_strategy_at(i)->knob, saved->knob, false)) return i;
    unsigned length = 0;
    if (named_beginning(name) < HAK_STRATEGY_SAVED) name = "saved"; /* two rows of one name are a file that the next run refuses */
    for (; name[length] && length < HAK_STRATEGY_NAME_BYTES - 1; length++) saved->name[length] = name[length];
    saved->name[length] = 0;
    return HAK_STRATEGY_SAVED;
}

bool hak_strategy_plays(unsigned strategy) {
    if (hak_strategy_at(strategy)->is_control) return HAK_OPT(learn_controls) != 0;
    for (unsigned i = 0; i < strategy; i++)
        if (!hak_strategy_at(i)->is_control && same(hak_strategy_at(i)->knob, hak_strategy_at(strategy)->knob, true)) return false;
    return true;
}

void hak_strategy_apply(unsigned strategy) {
    for (unsigned option = 1; option < HAK_OPTION_COUNT; option++)
        if (hak_knob_is(option)) hak_option_steer(option, hak_strategy_value(strategy, option));
}

/* Blocks per word and relisting act from the next visit on; everything else is about memory that is kept or returned. */
static bool acts_at_once(unsigned option) { return option == HAK_O_word_bytes || option == HAK_O_relist_share; }

uint64_t hak_strategy_memory_ms(unsigned one, unsigned other) {
    bool differ = false;
    for (unsigned option = 1; option < HAK_OPTION_COUNT; option++)
        differ |= hak_knob_is(option) && !acts_at_once(option) && !hak_option_is_pinned(option) &&
                  hak_strategy_value(one, option) != hak_strategy_value(other, option);
    uint64_t a = hak_strategy_value(one, HAK_O_purge_delay_ms), b = hak_strategy_value(other, HAK_O_purge_delay_ms);
    if (hak_option_is_pinned(HAK_O_purge_delay_ms)) a = b = HAK_OPT(purge_delay_ms);
    return differ ? 2 * (a > b ? a : b) : 0;
}
