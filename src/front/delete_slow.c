/* delete_slow.c - the slow paths of operator delete.
 *
 * They look at the block first, so that misuse is reported as delete's, and then free it as free does. That
 * look costs a few loads of what free reads anyway; it is paid for strangers' and large blocks only.
 *
 * Threads:   any.
 */
#include "front/delete_slow.h"

#include "front/front.h"
#include "heap/middle.h"

static const char name[] = "delete";

HAK_NOINLINE void hak_delete_other(void *block, struct hak_granule *record, void *owner) {
    size_t middle_class = hak_slab_owners_middle(hak_self, owner); /* the thread's own: it made it what it is */
    if (HAK_LIKELY(middle_class != 0)) {
        hak_middle_free_inline(block, record, hak_self, name, middle_class);
        return;
    }
    struct hak_heap *heap = owner;
    atomic_thread_fence(memory_order_acquire); /* of the load of the owner */
    if (heap == HAK_LARGE && HAK_LIKELY(record->start == block)) {
        hak_free_other(block, record, heap);
        return;
    }
    if (HAK_LIKELY(hak_front_free_strange(block, record, heap))) return;
    hak_find(name, block);
    hak_free_own(block);
}

HAK_NOINLINE void hak_delete_slow(void *block) {
    if (!block) return;
    if (HAK_LIKELY(hak_region_holds(block))) {
        struct hak_granule *record = hak_granule_at(hak_granule_of(block));
        hak_delete_other(block, record, hak_load_relaxed(&record->owner));
        return;
    }
    hak_find(name, block);
    hak_free_own(block);
}

void hak_delete_sized_slow(void *block, size_t stated) { hak_free_stated(block, stated, name); }

HAK_NOINLINE void hak_delete_aligned(void *block, size_t align) {
    if (HAK_UNLIKELY(((uintptr_t)block & (align - 1)) != 0)) hak_misuse_align(name, block, align);
    hak_delete_slow(block);
}

/* The size is checked upwards only: an aligned block is that of a larger size. */
HAK_NOINLINE void hak_delete_aligned_sized(void *block, size_t stated, size_t align) {
    if (!block) return;
    hak_check_aligned(name, block, align, stated);
    hak_free_own(block);
}
