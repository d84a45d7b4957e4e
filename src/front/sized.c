/* sized.c - frees that state what they free, a size or an alignment: it is checked, not trusted.
 *
 * Threads:   any.
 * Measured:  another thread's block of 64 bytes, deleted with its size: looked at as hak_find() does, its size compared, and freed as free() does from the
 *            start, 11.0 ns; looked at once 5.2, and 3.9 by free() (bench/entries.py). What is compared is of no line that its owner writes.
 */
#include "front/front.h"

#include "hakmem/hakmem.h"
#include "heap/middle.h"
#include "heap/secure.h"
#include "rules/options.h"

void hak_check_size(const char *function, const void *block, size_t stated) {
    struct hak_found found = hak_find(function, block);
    if (HAK_UNLIKELY(!HAK_OPT(size_check))) return;
    if (stated > found.bytes + (found.exact && found.bytes == 0)) hak_misuse_size(function, block, found.bytes, stated);
    if (HAK_UNLIKELY(found.exact) && stated < found.bytes && found.bytes > 1) hak_misuse_size(function, block, found.bytes, stated);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_realloc_stayed))) return;
    bool is_outside = !found.record && !found.apart;
    if (is_outside && stated > found.bytes / 2) return; /* realloc leaves one whole down to a half */
    if (found.large || found.bytes > HAK_SLAB_BLOCK_BYTES_MAX) { /* exact to the page: realloc and hak_expand keep it so */
        size_t page = (size_t)1 << hak_region.page_shift;
        bool is_just_large = hak_secure_is_on() && stated <= HAK_SLAB_BLOCK_BYTES_MAX && stated > HAK_SLAB_BLOCK_BYTES_MAX - HAK_SECURE_WORD_BYTES;
        if (is_just_large && hak_round_up(stated, page) == found.bytes) return;
        size_t lead = found.large ? hak_large_lead(found.bytes) : 0;
        bool is_slabs = found.large && stated <= HAK_SLAB_BLOCK_BYTES_MAX;
        if (is_slabs || hak_front_good(lead + stated) != hak_front_good(lead + found.bytes)) hak_misuse_size(function, block, found.bytes, stated);
        return;
    }
    size_t block_bytes = found.apart ? hak_front_good(found.bytes) : found.bytes;
    const struct hak_class *exact = &hak_classes[stated ? hak_class_of(stated) : 1];
    if (exact->block_bytes > block_bytes / 2) return; /* realloc leaves a block in place down to a half; a shortage takes less than twice */
    if (hak_classes[exact->coarse].block_bytes != block_bytes) hak_misuse_size(function, block, found.bytes, stated);
}

/* A large block whose pages are just those of so many bytes, as hak_check_size() would find. */
static bool is_large_of(const struct hak_granule *record, const void *block, size_t stated) {
    size_t rest = hak_large_usable(record) - stated; /* more is stated: a number beyond all pages */
    return record->start == block && stated > HAK_SLAB_BLOCK_BYTES_MAX && rest < (size_t)1 << hak_page_shift() && !hak_secure_is_on();
}

static HAK_NOINLINE void free_stated_otherwise(void *block, size_t stated, const char *function) {
    if (!block) return;
    hak_check_size(function, block, stated);
    hak_free_own(block);
}

/* In the window: another thread's, or a block above 1 KiB that another class serves. */
static HAK_NOINLINE void free_stated_further(void *block, size_t stated, const char *function, struct hak_granule *record, struct hak_heap *owner,
                                             unsigned middle_class) {
    if (HAK_LIKELY(stated - 1 < HAK_SLAB_BLOCK_BYTES_MAX) && HAK_LIKELY(owner != HAK_LARGE) && HAK_LIKELY(hak_front_has_class(record, stated))) {
        if (middle_class != 0) {
            hak_middle_free(block, record, hak_self, function, middle_class);
            return;
        }
        if (HAK_LIKELY(hak_front_free_strange(block, record, owner))) return;
    }
    free_stated_otherwise(block, stated, function);
}

/* The thread's own above 1 KiB, of just this class, and large ones: it saves no register. */
HAK_NOINLINE void hak_free_stated(void *block, size_t stated, const char *function) {
    if (HAK_UNLIKELY(!hak_region_holds(block))) { /* nor NULL */
        free_stated_otherwise(block, stated, function);
        return;
    }
    struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    struct hak_heap *self = hak_self, *owner = hak_load_acquire(&record->owner);
    size_t middle_class = hak_slab_owners_middle(self, owner);
    if (middle_class != 0) {
        const struct hak_row *row = hak_row_of(record->words); /* which is read in any case */
        if (HAK_LIKELY(row->block_bytes - stated < row->step)) {
            hak_middle_free_inline(block, record, self, function, middle_class);
            return;
        }
    } else if (owner == HAK_LARGE && HAK_LIKELY(is_large_of(record, block, stated))) {
        hak_free_other(block, record, owner);
        return;
    }
    free_stated_further(block, stated, function, record, owner, (unsigned)middle_class);
}

void hak_free_sized_slow(void *block, size_t bytes) { hak_free_stated(block, bytes, "free_sized"); }

void hak_check_aligned(const char *function, const void *block, size_t align, size_t bytes) {
    if ((uintptr_t)block & (align - 1)) hak_misuse_align(function, block, align);
    size_t own_bytes = hak_front_own_bytes(block);
    if (HAK_LIKELY(own_bytes != 0) && HAK_LIKELY(bytes <= own_bytes)) return;
    struct hak_found found = hak_find(function, block);
    bool is_less = found.exact && bytes < found.bytes && found.bytes > 1;
    if ((bytes > found.bytes || is_less) && HAK_OPT(size_check)) hak_misuse_size(function, block, found.bytes, bytes);
}

void hak_free_aligned(void *block, size_t align, size_t bytes) {
    if (!block) return;
    hak_check_aligned("free_aligned_sized", block, align, bytes);
    hak_free_own(block);
}

/* C23; and cfree, which SVID had */
HAK_EXPORT void free_sized(void *block, size_t bytes);
HAK_EXPORT void free_aligned_sized(void *block, size_t align, size_t bytes);
HAK_EXPORT void cfree(void *block);

HAK_EXPORT void free_sized(void *block, size_t bytes) { hak_free_sized_inline(block, bytes); }
HAK_EXPORT void free_aligned_sized(void *block, size_t align, size_t bytes) { hak_free_aligned(block, align, bytes); }
HAK_EXPORT void cfree(void *block) { hak_free_inline(block); }

HAK_ALIAS(cfree) extern void __libc_cfree(void *block);
