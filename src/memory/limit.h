/* limit.h - what the program may take, and what it may leave resident: limit_hard_mb and limit_soft_mb.
 *
 * Hard:      spans in use and blocks outside the window. A span that would exceed it is not taken, as if the kernel had refused it. The
 *            library's own spans (heaps, pools) count and are never refused: without them nobody could take what is free inside.
 * Soft:      used memory that is resident and free memory together: what is used leaves so much less for the bound of memory/purge.h.
 * Owns:      the granules of blocks outside the window.
 * Threads:   any. Who asks adds later: threads that ask at once may exceed the limit by what they take at once; one in a rush
 *            (memory/rush.h) by what it has not added yet, 1 MiB.
 */
#ifndef HAK_MEMORY_LIMIT_H
#define HAK_MEMORY_LIMIT_H

#include "base/atomic.h"
#include "base/attr.h"
#include "rules/options.h"

extern hak_atomic_i64 hak_limit_outside_granules;
/* Of blocks whose pages are just being moved: two spans are in use for each. A fork's child begins with none. */
extern hak_atomic_i64 hak_limit_moving_granules;

/* In granules: all that counts. */
int64_t hak_limit_taken(void);

/* There is a limit: would so many granules more exceed it? */
bool hak_limit_is_reached(size_t granules);
HAK_INLINE bool hak_limit_refuses(size_t granules) { return HAK_UNLIKELY(HAK_OPT(limit_hard_mb) != 0) && hak_limit_is_reached(granules); }

/* What is left for free memory of `bytes`, beside so many that are used and resident. */
uint64_t hak_limit_rest(uint64_t bytes, uint64_t used_bytes);
HAK_INLINE uint64_t hak_limit_free(uint64_t bytes, uint64_t used_bytes) {
    return HAK_LIKELY(HAK_OPT(limit_soft_mb) == 0) ? bytes : hak_limit_rest(bytes, used_bytes);
}

#endif
