/* tray.h - where sampled blocks lie: a few blocks of one class each, in granules that are no thread's.
 *
 * A granule record whose owner is HAK_WATCHED makes every free of these blocks leave the fast path, and the slow one
 * come here (heap/hooks.h). A tray is 1 to 32 blocks of one class in cells of 1 KiB; a granule has 64 cells. So a
 * program with one live sample of each of ten classes pays for ten trays, not for ten slabs.
 *
 * Owns:      the granules and their descriptors (own mappings, type-stable, never given back).
 * Threads:   any. Each change is one atomic operation, and nobody waits. A thread that vanishes leaves at worst cells that
 *            are never used again.
 */
#ifndef HAK_WATCH_TRAY_H
#define HAK_WATCH_TRAY_H

#include "base/atomic.h"
#include "base/attr.h"

/* A block of the class, and the place of its number (0 until the caller sets it); NULL when memory is short. */
void *hak_tray_take(unsigned class_index, hak_atomic_u32 **number);

/* Frees it; false: no live block starts there. */
bool hak_tray_give(void *block);

struct hak_tray_place {
    char *start;             /* of the block that the address lies in */
    size_t bytes;
    unsigned class_index;
    bool is_free;
    hak_atomic_u32 *number;
};
/* What lies, or lay last, at an address of any kind; false: nothing of trays. Reads only. */
bool hak_tray_find(const void *address, struct hak_tray_place *place);

/* Live blocks of each class, for the census; of a class handed out so far. */
void hak_tray_census(uint64_t *live, uint64_t *handed);
struct hak_walk;
int hak_tray_walk(const struct hak_walk *walk);

#endif
