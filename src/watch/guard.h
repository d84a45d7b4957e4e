/* guard.h - guarded blocks: alone between pages that nothing may touch; freed ones stay untouchable for a while.
 *
 * One sample in HAKMEM_GUARD becomes one (sampler.c asks). An access beside the block, or to it after its free, is a SIGSEGV
 * at the instruction that makes it; guard_report.c says what was done to which block, with the stacks.
 *
 * Owns:      one reservation of addresses, outside the window, cut into equal places; a row for each (published.h).
 * Threads:   any. A place's word says whose it is; each change is one compare-and-swap, and nobody waits. A thread that
 *            vanishes in between leaves a place that is never used again.
 */
#ifndef HAK_WATCH_GUARD_H
#define HAK_WATCH_GUARD_H

#include "base/atomic.h"
#include "watch/stack.h"

struct hak_heap;
struct hak_census;
struct hak_walk;

/* A block, aligned to 16 at least; NULL: none is to be had. Above HAK_SLAB_BLOCK_BYTES_MAX it counts as a large one, and reads as
 * zeros. *number is the place of its sample's number, 0 until the caller sets it. */
void *hak_guard_take(struct hak_heap *heap, size_t bytes, size_t align, struct hak_stack_here here,
                     struct hak_stack_bounds *bounds, uint64_t *random, hak_atomic_u32 **number);

/* Is the address among ours, in a block or not? Any thread, any time. */
bool hak_guard_holds(const void *address);

/* Of a live block that starts there: its usable bytes, else 0; the place of its sample's number, else NULL. */
size_t hak_guard_usable(const void *block);
hak_atomic_u32 *hak_guard_number(const void *block);

/* The row whose block, live or freed, is nearest to an address of ours; NULL: none is near. Reads only. */
struct hak_guard_row *hak_guard_near(const void *address);

/* Ends a live block that starts there; false: none does. What was written beside it ends the program, with a report. */
bool hak_guard_free(struct hak_heap *heap, void *block, struct hak_stack_here here, struct hak_stack_bounds *bounds);

void hak_guard_census(struct hak_census *census);
int hak_guard_walk(const struct hak_walk *walk);

/* The calling thread, now; its frames are the caller's to fill. */
void hak_guard_event_begin(struct hak_guard_event *event);

/* --- guard_report.c --- */

/* Listens to the signals. Called for each guarded block: a program's own handler may have come since. */
void hak_guard_listen(void);
/* A child begins: now, for later it may be in a sandbox. */
void hak_guard_listen_in_child(void);

/* Further lines, behind a line of front/misuse.c that is about an address of ours, which a call that frees was given, or one that
 * asks. */
void hak_guard_misused(const void *address, bool frees, struct hak_stack_here here);

/* Bytes beside the block were overwritten, as its free finds: says so, and ends the program. */
__attribute__((noreturn)) void hak_guard_overwritten(struct hak_guard_row *row, const char *byte);

#endif
