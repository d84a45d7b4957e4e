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

/* After the options are read, once, before main. True: something will be explored, and the next two are to be called. */
bool hak_learn_start(void);

/* The parent, after a fork: nothing is explored for a second. */
void hak_learn_forked(void);

/* The child: what it learns is its own from now on. */
void hak_learn_in_child(void);

/* At the program's end: the policy file. */
void hak_learn_end(void);

/* "learn": {...}, as a member of the statistics' JSON object; row_end is called after each line. */
void hak_learn_json(struct hak_text *text, void (*row_end)(void *context), void *context);

/* Where lines for standard error go; start.c sets it. NULL: 2. */
extern int (*hak_learn_line_to)(void);

/* Told once where the state is that others may read, and its length; set before hak_learn_start(). */
extern void (*hak_learn_on_shown)(const void *shown, size_t bytes);

/* For lifetime.c: a heap that grows took so many bytes for this call site. Sites are numbered as they are first seen, so that
 * those above a number were not known when the present choice was made; 0 is nobody's. */
void hak_learn_site(uint32_t site, uint64_t bytes);

#endif
