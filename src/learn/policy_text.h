/* policy_text.h - the text of a policy file (docs/policy.md), read and written in memory.
 *
 * Owns:      nothing. Pure: bytes in, a struct out, or one reason why not.
 * Trust:     the bytes may be anything. They are believed whole or not at all, and hold no address: all numbers are ranges,
 *            names are of lists or of harmless letters (test/unit/policy_text.c changes files at random).
 */
#ifndef HAK_LEARN_POLICY_TEXT_H
#define HAK_LEARN_POLICY_TEXT_H

#include "base/text.h"
#include "learn/policy.h"

enum {
    HAK_POLICY_BYTES_MAX = 512 << 10,
    HAK_POLICY_LINE_MAX = 256,
    HAK_POLICY_ROWS_MAX = 64,
    HAK_POLICY_NAME_BYTES = 24,
    HAK_POLICY_FILLED_MAX = 128,
    HAK_POLICY_FELL_MAX = 8,
    HAK_POLICY_DEAR_MAX = 6,
    HAK_POLICY_SLABS_MAX = 1 << 20,
};

struct hak_policy_knob {
    uint32_t option;
    uint64_t value;
};
struct hak_policy_rating {
    char strategy[HAK_POLICY_NAME_BYTES];
    int64_t elo, error;
    uint64_t duels;
    uint32_t state; /* 0 in, 1 aside, 2 out */
};
struct hak_policy_change {
    uint64_t ms;
    uint32_t from, to; /* 0 off, 1 learn, 2 canary, 3 frozen */
    char reason[HAK_POLICY_NAME_BYTES];
    int64_t number[2];
};
struct hak_policy_filled {
    uint32_t block_bytes; /* of the class */
    uint32_t slabs, last; /* that are known to be filled; that the last run filled */
};
struct hak_policy {
    char program[65], name[65], library[HAK_POLICY_NAME_BYTES], strategy[HAK_POLICY_NAME_BYTES];
    uint64_t runs;
    uint32_t stage;
    bool has_gain, has_noise, has_spare;
    uint32_t halvings;
    int64_t gain, gain_error, noise;
    uint64_t gain_duels, noise_duels, spare_runs;
    uint32_t fell, dear; /* how often less was filled than was known; how often in a row huge pages were dear */
    uint32_t knob_count, rating_count, change_count, site_count, filled_count;
    struct hak_policy_knob knob[HAK_POLICY_ROWS_MAX];
    struct hak_policy_rating rating[HAK_POLICY_ROWS_MAX];
    struct hak_policy_change change[HAK_POLICY_ROWS_MAX];
    struct hak_policy_filled filled[HAK_POLICY_FILLED_MAX];
    /* where it is wrong: */
    uint32_t line;
    const char *wrong; /* NULL: it is a policy */
};

typedef void hak_policy_site_fn(const struct hak_policy_site *site, void *context);

/* Reads a whole file. `program`: whose it must be, as hexadecimal, NULL: anybody's. on_site (may be NULL) is called for each site
 * while it is read, so a first call without it says whether the file is to be believed. */
bool hak_policy_read_text(struct hak_policy *policy, const char *bytes, size_t count, const char *program,
                          hak_policy_site_fn *on_site, void *context);

/* FNV-1a of 64 bits: what the line `end` says of all before it. */
uint64_t hak_policy_sum(const char *bytes, size_t count);

/* Writes everything but sites and the end; then a line per site; then the end, the sum over all before it. */
void hak_policy_write_text(struct hak_text *text, const struct hak_policy *policy);
void hak_policy_write_site(struct hak_text *text, const struct hak_policy_site *site);
void hak_policy_write_end(struct hak_text *text);

#endif
