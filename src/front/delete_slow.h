/* delete_slow.h - what operator delete does when its fast path leaves: as free, but under its own name. */
#ifndef HAK_FRONT_DELETE_SLOW_H
#define HAK_FRONT_DELETE_SLOW_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(hidden)

void hak_delete_slow(void *block);
struct hak_granule;
void hak_delete_other(void *block, struct hak_granule *record, void *owner); /* as hak_free_other() */
/* The size is not that of the block's class: right all the same (a coarser class, a large block), or misuse. */
void hak_delete_sized_slow(void *block, size_t stated);

/* Misuse unless the block is aligned to `align`, a power of two. */
void hak_delete_aligned(void *block, size_t align);
void hak_delete_aligned_sized(void *block, size_t stated, size_t align);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
