/* outside.h - blocks past the window: one mapping each, in a side table.
 *
 * Owns:      the table, of addresses and sizes. Only where the window is smaller than what the machine has
 *            (valgrind, HAKMEM_REGION_GB, a limit that was raised later) does anything come here.
 * Threads:   any; a row is taken and given by CAS on its address.
 * Limits:    4,096 such blocks at a time, each above 32 KiB.
 */
#ifndef HAK_MEMORY_OUTSIDE_H
#define HAK_MEMORY_OUTSIDE_H

#include "base/atomic.h"
#include "base/attr.h"

void *hak_outside_take(size_t bytes, size_t align); /* zeroed; NULL when refused */
size_t hak_outside_bytes(const void *block);        /* usable; 0 if it is none of ours */
bool hak_outside_give(void *block);                 /* false: none of ours */
void *hak_outside_next(size_t *row, size_t *bytes); /* the next live one from *row on, which is 0 at first; NULL: there is none */

/* A sampled block's number, 0 if it is none; NULL: none of ours. Who frees the block takes it, and it is told. */
hak_atomic_u32 *hak_outside_number(const void *block);
extern void (*hak_outside_on_end)(uint32_t number);

/* A mapping that does not lie where the window is or may come to; and does one? */
char *hak_outside_map(size_t bytes);
bool hak_outside_meets_window(uintptr_t start, size_t bytes);

#endif
