/* delete_slow.c - the slow paths of operator delete.
 *
 * They look at the block first, so that misuse is reported as delete's, and then free it as free does. That
 * look costs a few loads of what free reads anyway; it is paid for strangers' and large blocks only.
 *
 * Threads:   any.
 */
#include "front/delete_slow.h"

#include "front/front.h"

static const char name[] = "delete";

HAK_NOINLINE void hak_delete_slow(void *block) {
    if (!block) return;
    hak_find(name, block);
    hak_free_inline(block);
}

/* Sizes whose class is the block's, or whose coarser class is; and from half of the block on, for what was
 * resized in place. A block above the classes was asked for above them. */
static bool size_may_be(struct hak_found found, size_t stated) {
    if (found.bytes > HAK_SLAB_BLOCK_BYTES_MAX) return stated <= found.bytes && stated > HAK_SLAB_BLOCK_BYTES_MAX;
    if (stated > found.bytes / 2) return stated <= found.bytes;
    unsigned exact = stated ? hak_class_of(stated) : 1;
    return hak_classes[exact].block_bytes == found.bytes || hak_classes[hak_classes[exact].coarse].block_bytes == found.bytes;
}

HAK_NOINLINE void hak_delete_sized_slow(void *block, size_t stated) {
    if (!block) return;
    struct hak_found found = hak_find(name, block);
    if (HAK_UNLIKELY(!size_may_be(found, stated))) hak_misuse_size(name, block, found.bytes, stated);
    hak_free_inline(block);
}

HAK_NOINLINE void hak_delete_aligned(void *block, size_t align) {
    if (HAK_UNLIKELY(((uintptr_t)block & (align - 1)) != 0)) hak_misuse_align(name, block, align);
    hak_delete_slow(block);
}

/* The size is checked upwards only: an aligned block is that of a larger size. */
HAK_NOINLINE void hak_delete_aligned_sized(void *block, size_t stated, size_t align) {
    if (HAK_UNLIKELY(((uintptr_t)block & (align - 1)) != 0)) hak_misuse_align(name, block, align);
    if (!block) return;
    struct hak_found found = hak_find(name, block);
    if (HAK_UNLIKELY(stated > found.bytes)) hak_misuse_size(name, block, found.bytes, stated);
    hak_free_inline(block);
}
