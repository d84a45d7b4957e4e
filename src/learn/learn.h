/* learn.h - learning in the process: its clock, its lock, and what it shows. The only room of learn that others know.
 *
 * Threads:   any. Everything is done by whoever visits when it is due, under a lock that is only tried: its word holds the
 *            fork epoch, so that a child's is void, and the child makes everything anew but the choice that was frozen.
 * Off:       without hak_learn_start() nothing of this folder runs; deleting it and its lines in front/start.c leaves a
 *            working allocator (test/laws/without.py).
 */
#ifndef HAK_LEARN_LEARN_H
#define HAK_LEARN_LEARN_H

#include "base/attr.h"
#include "base/text.h"

/* After the options are read, once, before main. */
void hak_learn_start(void);

/* The parent, after a fork: nothing is explored for a second. */
void hak_learn_forked(void);

/* At the program's end: the policy file. */
void hak_learn_end(void);

/* "learn": {...}, as a member of the statistics' JSON object; row_end is called after each line. */
void hak_learn_json(struct hak_text *text, void (*row_end)(void *context), void *context);

/* Told once where the state is that others may read, and its length; set before hak_learn_start(). */
extern void (*hak_learn_on_shown)(const void *shown, size_t bytes);

/* For rooms that see call sites: of `all` bytes allocated lately this many came from sites that were not known when the
 * present choice was made. */
void hak_learn_sites(uint64_t unseen, uint64_t all);

#endif
