/* split.h - classes are split by lifetime, as learn/lifetime.c would have them. */
#ifndef HAK_UNIT_SPLIT_H
#define HAK_UNIT_SPLIT_H

#include "heap/pool.h"

/* The calling thread's heap follows at its next visit. */
HAK_INLINE void split(uint64_t classes) {
    hak_store_release(&hak_split_classes, classes);
    hak_pools_tell();
    if (hak_self->opened_bytes < 8 << 20) hak_self->opened_bytes = 8 << 20; /* small heaps do not follow */
    hak_heap_chores_call(hak_self);
}
HAK_INLINE void split_here(uint64_t classes) {
    split(classes);
    hak_visit_chores(hak_self);
}

#endif
