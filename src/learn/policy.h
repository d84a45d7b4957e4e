/* policy.h - what a program has taught, as a file of text for its next run: docs/policy.md.
 *
 * Owns:      the format. Rooms that know something by call site give it here and get it back here.
 * Threads:   reading: one, at start. Writing: whoever ends the program, or asks. Rooms are asked under the learn lock
 *            (try-only), so never two at once.
 * Kept:      a file that is not believed is not overwritten either: it may be another program's.
 * Trust:     a file is believed whole or not at all; what is read is numbers within ranges, never an address.
 */
#ifndef HAK_LEARN_POLICY_H
#define HAK_LEARN_POLICY_H

#include "base/attr.h"

/* What is known of a site; the numbers are in docs/policy.md. */
enum hak_policy_kind { HAK_POLICY_POOL, HAK_POLICY_KEEP, HAK_POLICY_KIND_COUNT };

struct hak_policy_site {
    uint64_t module;   /* the first 8 bytes of its build-id, the first byte highest */
    uint64_t offset;   /* of the return address in the module */
    uint64_t address;  /* the return address in this process; 0: the module is not loaded */
    uint32_t height;   /* bytes of stack between the thread's stack top and the call */
    uint16_t class_index;
    uint16_t kind;     /* enum hak_policy_kind */
    uint64_t number[3];
};

enum { HAK_POLICY_SITES_MAX = 4096 };

/* A room with knowledge by site. Its functions may be NULL; none may allocate from HAKMEM. */
struct hak_policy_room {
    /* Reading, once per site of the room's kind whose module is loaded: at start, before main. */
    void (*take)(const struct hak_policy_site *site);
    /* Writing: calls put() once per site worth keeping, at most HAK_POLICY_SITES_MAX in all; address, height, class_index and
     * number are the room's, the rest is filled in by put(), which leaves out what lies in no module with a build-id and says so: it is no news.
     * Returns whether anything is new since the file was read. */
    bool (*give)(bool (*put)(struct hak_policy_site *site, void *context), void *context);
    /* In a forked child: what is known now is no news of its own. put() is as give()'s, and does nothing. */
    void (*note)(bool (*put)(struct hak_policy_site *site, void *context));
};

/* Says which room a kind belongs to; before hak_learn_start(). */
void hak_policy_room_set(enum hak_policy_kind kind, const struct hak_policy_room *room);

/* --- for learn.c --- */

struct hak_policy;
struct hak_cycle;

/* Reads the file of option `policy`. What is wrong with it is said in one line. NULL: there is none, or it is not believed.
 * Rooms have been given their sites when it returns. */
const struct hak_policy *hak_policy_load(void);

/* In a forked child: rooms note what they had from the parent. */
void hak_policy_forked(void);

/* Writes what is known now, if anything is new or `always`: 0 or -errno, HAK_TRUST_*. Under the learn lock. */
int hak_policy_store(const char *path, const struct hak_cycle *cycle, bool always);

/* What it says of slabs that will be filled is in force from now on. Frozen: nothing is tried. */
void hak_policy_ahead(const struct hak_policy *policy, bool is_frozen);

/* Did the user leave the bound on free memory to us? */
bool hak_spare_is_ours(void);

/* The path of option `policy`, its %p, %e and %% replaced; false: it is too long. */
bool hak_policy_path(char *bytes, size_t count);

/* One line: HAKMEM_POLICY: PATH what, to the descriptor of hak_learn_line_to (learn.h). */
void hak_policy_say(const char *path, const char *what);
const char *hak_policy_error(int error);

#endif
