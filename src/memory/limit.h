/* limit.h - what the program may take, and what it may leave resident: limit_hard_mb, limit_soft_mb, and the control group's limit.
 *
 * Hard:      spans in use and blocks outside the window. A span that would exceed it is not taken, as if the kernel had refused it. The
 *            library's own spans (heaps, pools) count and are never refused: without them nobody could take what is free inside.
 * Soft:      used memory that is resident and free memory together: what is used leaves so much less for the bound of memory/purge.h.
 * Group:     where the user set no soft limit, and `cgroup` is on, nine tenths of what the control groups allow become limit_soft_mb. They
 *            are read (os/group.c) once the process has taken 32 MiB, and every 10 seconds from then on: limits are changed while
 *            programs run. A small program reads nothing.
 * Owns:      the granules of blocks outside the window; what was read of the groups, and when.
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

/* A span was taken, and nobody has touched it yet: what is free makes room for it under the soft limit. */
void hak_limit_make_room(void);
HAK_INLINE void hak_limit_grew(void) {
    if (HAK_UNLIKELY(HAK_OPT(limit_soft_mb) != 0)) hak_limit_make_room();
}

/* --- the control group --- */

enum { HAK_LIMIT_GROUP_GRANULES = 512, HAK_LIMIT_GROUP_MS = 10000 };

extern hak_atomic_u64 hak_limit_group_bytes;  /* as read last; 0: no limit, or not read */
extern hak_atomic_u64 hak_limit_group_due_ms; /* when to read it again; 0: it never was */

/* Reads it, if it is time. */
void hak_limit_group_look(uint64_t now_ms);
/* A forked child may be in another group, soon. */
void hak_limit_group_forgotten(void);
HAK_INLINE void hak_limit_group_forget(void) {
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_limit_group_due_ms) != 0)) hak_limit_group_forgotten();
}

#endif
