/* ahead.h - huge pages for slabs that the program is known to fill: earlier runs of it did (slab/filled.h).
 *
 * Owns:      halves of 2 MiB, resident as huge pages before anybody touches them, and which of their granules are left for slabs. They count as
 *            used all the while: neither the bound on free memory nor large blocks get at them.
 * Threads:   any. A half is one word, changed by CAS; who vanishes in a fork leaks what he took.
 * Ends:      when as many halves were made as are known to be filled; at once where the kernel has no huge page at hand (one is timed),
 *            refuses, or a limit is near. What is left of a half for a second after the last slab was cut there goes back to the free memory.
 * Measured:  docs/learning.md, section "Memory that will be filled".
 */
#ifndef HAK_MEMORY_AHEAD_H
#define HAK_MEMORY_AHEAD_H

#include "base/atomic.h"
#include "base/attr.h"

#include <stddef.h>

/* So many halves may be made from now on. */
void hak_ahead_start(uint32_t halves);

/* So many granules in a row for a slab, all resident and zeros (dirty and blank), as hak_span_take_dense() gives them; HAK_NO_GRANULE: there are
 * none. */
size_t hak_ahead_take(size_t count);

/* The same for a large block of a site that touches all it asks for: so many granules of those are to be expected. */
extern hak_atomic_i64 hak_ahead_large;
enum { HAK_AHEAD_LARGE_MAX = 16 };
size_t hak_ahead_take_large(size_t count);

/* What is left of halves goes back to the free memory, if none was taken for a second, or now. */
extern hak_atomic_u32 hak_ahead_used; /* 1: halves were made */
void hak_ahead_end(uint64_t now_ms);
void hak_ahead_end_now(void);

/* Were halves made by hak_ahead_take()? Did they take longer than small pages would have? */
bool hak_ahead_was_tried(void);
bool hak_ahead_was_dear(void);
/* In a forked child: the parent's are no news of its own. */
void hak_ahead_forget(void);

/* Where a policy halved the bound on free memory, what a huge page for a heap that grows densely leaves of its half (memory/huge.h) waits here for the
 * next slab, too: as free memory it would go back at once. The caller has taken these granules, as bits, dirty and blank. */
void hak_ahead_add(size_t half, uint32_t granules);
/* Of what is left alone. */
size_t hak_ahead_take_left(size_t count);

#endif
