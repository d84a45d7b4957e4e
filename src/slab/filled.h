/* filled.h - how many slabs of each class a program fills, so that its next run can have huge pages under them from the first on.
 *
 * Owns:      of the moment when most memory lay in slabs that were filled, how many each class had; and how many of those an earlier run had are
 *            still to be cut.
 * Filled:    seven eighths of the slab's blocks were handed out once, and as much of its pages is resident: what is free by then costs no huge page
 *            anything. The last slab of a class seldom is, so that what is known is what will be used.
 * Looked:    at all slabs (some 50 ns each), whenever a sixteenth of what was filled was cut in new memory since the last look, and as the program
 *            ends. For the first minute: how a program begins is what the next run is to know.
 * Threads:   any. One looks at a time; slabs are read under their claim.
 * Off:       without a policy file (docs/policy.md).
 */
#ifndef HAK_SLAB_FILLED_H
#define HAK_SLAB_FILLED_H

#include "memory/chunk.h"
#include "slab/class.h"

struct hak_heap;
struct hak_slab;

/* What is done, as bits: growth is looked at, something is known. */
enum { HAK_FILLED_LOOKS = 1, HAK_FILLED_KNOWS = 2 };
extern hak_atomic_u32 hak_filled;

/* From now on growth is looked at. Before threads begin. */
void hak_filled_start(void);
void hak_filled_look(void);

/* A slab is to be cut. In memory that is not resident: is it time to look? And is it one of those that are known to be filled? Then it is cut in huge
 * pages, if there are any; else NULL. Of slabs of which little may be wanted (HAK_GROWTH_LITTLE) those of one heap are, the first that comes: of
 * hundreds of threads each has one of a class, and not all fill it. */
struct hak_slab *hak_filled_cut(struct hak_heap *heap, unsigned shelf_index, enum hak_growth growth);

/* In a forked child: what the parent filled is not its own news. */
void hak_filled_forget(void);

/* Slabs of the class that were filled when most memory lay in such. */
uint32_t hak_filled_slabs(unsigned class_index);

/* Known: of the class so many slabs will be. Before threads begin. */
void hak_filled_believe(unsigned class_index, uint32_t slabs);

#endif
