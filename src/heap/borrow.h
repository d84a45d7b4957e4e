/* borrow.h - blocks of coarser classes: for a class that is rare in its heap, and before a class opens a page.
 *
 * Each class that a heap uses costs it a page at least, and each holds most at another time than the others: forty that open a page
 * whenever they need one hold three times what is ever live at once.
 *
 * Rare       the first two blocks of a class in a heap; where heaps are many, until it asked often or grew. Above 4 KiB every second class
 *            is served by the next until that has opened 32 blocks for it.
 * Before     a page more: a class up to 4 KiB takes a block that lies in a coarser one's bin or is kept, up to half larger, or by 128
 *            bytes; four times, and once for each 32 KiB that it hands out, for each time costs a visit.
 *
 * Owns:      `rare` of a heap's shelves, and its middle_lent.
 * Threads:   the heap's owner.
 * Measured:  docs/decisions/0004-slab-sizes-and-rare-classes.md.
 */
#ifndef HAK_HEAP_BORROW_H
#define HAK_HEAP_BORROW_H

#include "heap/heap.h"

/* How many blocks a rare class has asked for. */
HAK_INLINE int32_t hak_borrow_asks(const struct hak_shelf *shelf) { return (int32_t)((uint32_t)shelf->rare << 8) >> 8; }

/* The class or pool that the size has, where shelf `index` serves it. */
HAK_INLINE unsigned hak_borrow_exact(size_t bytes, unsigned index) {
    if (HAK_UNLIKELY(hak_class_is_power(index))) return index;
    unsigned exact = bytes ? hak_class_of(bytes) : 1;
    return index < HAK_CLASS_COUNT ? exact : hak_pool_of(exact);
}

/* It may be served by the next. */
HAK_INLINE bool hak_borrow_has_pair(unsigned exact) { return hak_class_is_middle(exact) && hak_class_pair(exact) != exact; }

/* Where heaps are many a class stays rare for long: its sizes are served by the coarser class's bin on malloc's fast path (above 1 KiB by that and by
 * what is kept), until that is empty when it is asked for them. Then the class has asked about as often as blocks went into that bin meanwhile.
 * True: the coarser class, which has nothing at hand, is to be visited for it; false: the size's own class serves it from here on. */
bool hak_borrow_goes_on(size_t bytes, struct hak_heap *heap, unsigned by);
HAK_INLINE bool hak_borrow_serves_middle(const struct hak_heap *heap) { return (int64_t)heap->middle_lent < 0; } /* HAK_MIDDLE_SERVED */
void hak_borrow_serve_none(struct hak_heap *heap);

/* A block for a class that is rare in this heap: of the coarser one, or at last of a slab of its own. */
void *hak_borrow_rare(size_t bytes, struct hak_heap *heap, unsigned index);
/* Shelf `index` has opened a page, if opened_bytes is not what it was, for a block of so many bytes. */
void hak_borrow_grew(struct hak_heap *heap, size_t bytes, unsigned index, uint64_t opened);
/* The class has a slab of its own from here on. */
void hak_borrow_class_grew(struct hak_heap *heap, unsigned exact);
/* What was opened for rare classes some time ago counts no more: every purge_delay_ms, and at the thread's end. */
void hak_borrow_forget_lent(struct hak_heap *heap, bool is_end);
HAK_INLINE void hak_borrow_forget(struct hak_heap *heap, bool is_end) {
    if (HAK_UNLIKELY(heap->middle_lent != 0)) hak_borrow_forget_lent(heap, is_end);
}

enum { HAK_BORROW_BLOCKS = 4, HAK_BORROW_EACH_BYTES = 32 << 10, HAK_BORROW_CLASS_MAX = HAK_SMALL_CLASS_MAX + 16, HAK_BORROW_FREELY_BYTES = 64 << 10 };

/* The class or pool would open a page: may it borrow? No more after 2^28 times, for `rare` counts them above 2^30. */
HAK_INLINE bool hak_borrow_may(const struct hak_heap *heap, unsigned index) {
    if (index > HAK_BORROW_CLASS_MAX || heap->opened_bytes < HAK_BORROW_FREELY_BYTES) return false;
    const struct hak_shelf *shelf = &heap->shelf[index];
    uint64_t borrowed = (uint32_t)(shelf->rare - HAK_RARE_OFTEN) / HAK_RARE_BORROWED; /* of a rare one: a large number */
    return borrowed < HAK_RARE_OFTEN / 4 &&
           borrowed * HAK_BORROW_EACH_BYTES < shelf->handed * hak_classes[index].block_bytes + HAK_BORROW_BLOCKS * HAK_BORROW_EACH_BYTES;
}
/* A block that a coarser class has at hand; NULL: none that would do. */
void *hak_borrow_before(size_t bytes, struct hak_heap *heap, unsigned index);

#endif
