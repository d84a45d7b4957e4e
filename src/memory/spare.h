/* spare.h - what a smaller bound on free memory would have cost: played in numbers beside the real one.
 *
 * Owns:      how often the bound is halved (hak_purge.halvings), and a row for each number of halvings: the free memory that
 *            would be resident under it, and how much that had gone back would have been touched again. With halvings there is
 *            no grace (memory/purge.h), in the first row there is.
 * Threads:   any. Rows are read and written relaxed: two threads at once may lose a note; the sums only steer.
 * Off:       until hak_spare_start(), which learning calls where a policy file is named; then an addition for each of the
 *            rows per 64 KiB that become free or are used again.
 * Errs:      to the dear side. A slab whose pages are counted is used again as a whole, what the sweep returns because it
 *            rested is taken to be kept, and the first row has its grace also where the real bound has none (a limit, a crowd).
 * Measured:  docs/learning.md, section "Spare memory".
 */
#ifndef HAK_MEMORY_SPARE_H
#define HAK_MEMORY_SPARE_H

#include "base/atomic.h"
#include "base/attr.h"

enum { HAK_HALVINGS_MAX = 3, HAK_SPARE_ROWS = HAK_HALVINGS_MAX + 1 };
enum { HAK_SPARE_CPU_NS = 20 * 1000 * 1000 }; /* a run that used less tells nothing */

extern hak_atomic_u32 hak_spare_on;

void hak_spare_start(void);

/* So many bytes became free, or (below 0) are used again. */
void hak_spare_note(int64_t bytes);

/* So many of the bytes that are noted next as used again went back to the kernel instead, or were never free memory of the
 * program's: they are passed by. */
void hak_spare_pass_by(uint64_t bytes);

/* In a forked child, whose processor time begins anew: what the parent missed is not its. */
void hak_spare_forget(void);

/* Bytes that would have been touched again after they went back, with the bound halved so often; since the start. */
uint64_t hak_spare_missed(unsigned halvings);

/* The most halvings, at most one more than `now`, whose price above that of the whole bound is at most one part in `share` of
 * the processor time; more than `now` only if that bound would have been broken. `page_ns`: what it costs to return a page of 4 KiB and to touch it again. */
unsigned hak_spare_choose(unsigned now, uint64_t cpu_ns, uint64_t page_ns, uint64_t share);

/* What a run under `now` halvings really paid for it, since the start or, in a child, the fork: pages that went back and were touched again, system calls
 * that returned some. Those take ten microseconds where another thread runs meanwhile (memory/purge.c), and what threads keep for themselves is not
 * played. */
struct hak_spare_paid {
    uint64_t pages, calls;
    bool is_parallel; /* more than one thread ran at a time, for a good part of it */
};
struct hak_spare_paid hak_spare_paid(uint64_t cpu_ns);
/* Of what was chosen: one less than `now` where that cost more than one part in `share` of the processor time, no more than `now` where the next halving,
 * which about doubles it, would. */
unsigned hak_spare_check(unsigned now, unsigned chosen, const struct hak_spare_paid *paid, uint64_t cpu_ns, uint64_t page_ns, uint64_t share);

#endif
