/* borrow.c - a class that is served by coarser ones while it is rare in its heap, and what a class borrows before it opens a page.
 *
 * Threads:   the owner.
 * Measured:  docs/decisions/0004-slab-sizes-and-rare-classes.md.
 */
#include "heap/borrow.h"

#include "heap/hooks.h"

#include <string.h>

/* A block of the coarser class that was freed last, as in front/malloc.c. */
static HAK_COLD void *visit_middle(size_t bytes, struct hak_heap *heap, unsigned index) {
    struct hak_middle *middle = hak_middle_of(heap, index);
    unsigned count = hak_middle_count(middle);
    bool is_sample;
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->mail) != 0)) hak_middle_look_last(middle, count);
    void *block = hak_middle_take(heap, middle, count, &is_sample);
    if (HAK_LIKELY(!is_sample)) return block;
    void *(*on_kept)(size_t, struct hak_heap *, unsigned, void *) = HAK_HOOK(kept);
    return on_kept ? on_kept(bytes, heap, index, block) : block;
}

/* A class earns its slab by asking often, or by pages that coarser classes opened for it: two numbers in one. Above 4 KiB
 * every second class is served by the next until that has opened so many blocks for it. */
enum { RARE_PAGES = 16, RARE_BLOCKS = 32, RARE_PAGE = 1 << 24 };

static void rare_asked(struct hak_shelf *shelf) {
    shelf->rare++;
    if (hak_borrow_asks(shelf) >= (int32_t)hak_load_relaxed(&hak_rare_blocks)) shelf->rare = HAK_RARE_OFTEN;
}

/* --- what malloc's fast path serves of a rare class, where heaps are many --- */

static void serve_by(struct hak_heap *heap, unsigned index, unsigned by) {
    uint16_t bytes = (uint16_t)(by * 16);
    heap->class_bytes[index - 1] = bytes;
    if (index > HAK_NARROW_CLASS_MAX) heap->class_bytes[index - 2] = bytes;
}

/* Of a class that is split, or whose coarser one is, the pools are asked. */
static bool is_split(const struct hak_heap *heap, unsigned index) {
    uint64_t split = hak_load_relaxed(&heap->split);
    return index <= HAK_SMALL_CLASS_MAX && ((split >> (index - 1) | split >> (hak_classes[index].coarse - 1)) & 1) != 0;
}

static HAK_NOINLINE bool may_serve(const struct hak_heap *heap, unsigned index) {
    const struct hak_shelf *shelf = &heap->shelf[index];
    int32_t asks = hak_borrow_asks(shelf), most = (int32_t)hak_load_relaxed(&hak_rare_blocks);
    bool is_rare = shelf->rare < HAK_RARE_OFTEN && asks < most && most != HAK_RARE_BLOCKS;
    return is_rare && !is_split(heap, index) && !hak_load_relaxed(&heap->is_instance);
}

/* By its own bin, if it has earned a slab just now: that will have blocks. */
static HAK_NOINLINE void serve(size_t bytes, struct hak_heap *heap, unsigned index) {
    if (index >= HAK_CLASS_COUNT) return; /* a pool */
    bool is_served = may_serve(heap, index);
    if (index <= HAK_SMALL_CLASS_MAX) {
        serve_by(heap, index, is_served ? hak_classes[index].coarse : index);
    } else if (is_served) {
        heap->middle_lent |= HAK_MIDDLE_SERVED;
        heap->middle_at[(bytes - 1) / HAK_MIDDLE_STEP] = (uint8_t)(hak_classes[index].coarse - HAK_SMALL_CLASS_MAX);
    }
}

HAK_COLD void hak_borrow_serve_none(struct hak_heap *heap) {
    for (unsigned i = 0; i < HAK_SMALL_CLASS_MAX; i++) heap->class_bytes[i] = (uint16_t)hak_classes[hak_class_small(16 * i + 1)].block_bytes;
}

static void lent_set(struct hak_heap *heap, uint64_t lent) {
    memset(heap->middle_at, 0, sizeof heap->middle_at); /* for a forked child; and then what a handler found out in between */
    __atomic_store_n(&heap->middle_lent, lent, __ATOMIC_RELEASE);
    memset(heap->middle_at, 0, sizeof heap->middle_at);
}

/* The class has asked about as often as blocks went into the coarser class's bin since; what that keeps of the last ones freed is not counted. */
HAK_NOINLINE bool hak_borrow_goes_on(size_t bytes, struct hak_heap *heap, unsigned by) {
    enum { MOST = 64 };
    bool is_middle = by > HAK_SMALL_CLASS_MAX;
    if (is_middle && hak_load_relaxed(&hak_rare_blocks) == HAK_RARE_BLOCKS) { /* heaps are few again: all of its sizes are looked up anew */
        lent_set(heap, heap->middle_lent & ~HAK_MIDDLE_SERVED);
        return false;
    }
    unsigned index = is_middle ? (unsigned)hak_heap_middle_class(heap, bytes) : hak_class_small(bytes);
    if (index == by) return true;
    struct hak_shelf *shelf = &heap->shelf[index];
    uint32_t *from = is_middle ? &heap->middle_served_from[(by - HAK_SMALL_CLASS_MAX - 1) / 4] : &heap->served_from[by / 8];
    uint32_t handed = (uint32_t)heap->shelf[by].handed, count = handed - *from;
    *from = handed;
    bool is_served = may_serve(heap, index), has_own = hak_bin_at(heap, index)->word != 0;
    if (is_served) shelf->rare += (int32_t)(count < MOST ? count : MOST);
    if (is_middle) has_own |= hak_middle_count(hak_middle_of(heap, index)) != 0;
    if (is_served && !has_own) {
        HAK_COUNT(&heap->counters, visit_coarse, 1);
        return true;
    }
    if (is_middle) heap->middle_at[(bytes - 1) / HAK_MIDDLE_STEP] = 0;
    else serve_by(heap, index, index);
    return false;
}

HAK_COLD void hak_borrow_class_grew(struct hak_heap *heap, unsigned exact) {
    if (exact <= HAK_SMALL_CLASS_MAX) serve_by(heap, exact, exact);
    if (hak_borrow_has_pair(exact)) lent_set(heap, heap->middle_lent & ~(UINT64_C(1) << (exact - HAK_SMALL_CLASS_MAX - 1)));
    /* release: a forked child finds the bit with it; the bit alone is healed by a visit */
    __atomic_store_n(&hak_shelf_of(heap, exact)->rare, HAK_RARE_GREW, __ATOMIC_RELEASE);
}

void hak_borrow_grew(struct hak_heap *heap, size_t bytes, unsigned index, uint64_t opened) {
    if (heap->opened_bytes == opened) return;
    unsigned exact = hak_borrow_exact(bytes, index);
    struct hak_shelf *shelf = hak_shelf_of(heap, exact);
    if (shelf->rare >= HAK_RARE_OFTEN) return;
    shelf->rare += RARE_PAGE;
    if (shelf->rare >= (hak_borrow_has_pair(exact) ? RARE_BLOCKS : RARE_PAGES) * RARE_PAGE - RARE_PAGE / 2) hak_borrow_class_grew(heap, exact);
}

/* What a class opens slowly earns it nothing. At its thread's end a class above 4 KiB that has nothing to hand out is served by its pair again. */
void hak_borrow_forget_lent(struct hak_heap *heap, bool is_end) {
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) {
        struct hak_shelf *shelf = &heap->shelf[c];
        uint64_t lent = UINT64_C(1) << (c - HAK_SMALL_CLASS_MAX - 1);
        if (hak_borrow_has_pair(c) && !(heap->middle_lent & lent)) {
            if (!is_end || shelf->current || shelf->partial) continue; /* while it runs, all its slabs may be full */
            shelf->rare = 0;
            lent_set(heap, heap->middle_lent | lent); /* second, as in hak_borrow_class_grew() */
        } else if (shelf->rare >= RARE_PAGE && shelf->rare < HAK_RARE_OFTEN) {
            shelf->rare -= RARE_PAGE;
        }
    }
}

HAK_INLINE void *take_coarse(size_t bytes, struct hak_heap *heap, unsigned coarse) {
    struct hak_bin *bin = hak_bin_of(heap, coarse);
    uint64_t word = bin->word;
    if (word == 0) return hak_visit_any(bytes, heap, coarse);
    bin->word = word & (word - 1);
    return bin->base + hak_word_first(word) * (size_t)hak_classes[coarse].block_bytes;
}

static HAK_NOINLINE void *rare_among_many(size_t bytes, struct hak_heap *heap, unsigned index) {
    unsigned coarse = hak_classes[index].coarse;
    serve(bytes, heap, index);
    if (hak_class_is_middle(coarse)) {
        if (hak_middle_count(hak_middle_of(heap, coarse)) != 0) return visit_middle(bytes, heap, coarse);
        hak_middle_of(heap, coarse)->state = 0; /* the run of frees ends */
    }
    return take_coarse(bytes, heap, coarse);
}

HAK_NOINLINE void *hak_borrow_rare(size_t bytes, struct hak_heap *heap, unsigned index) {
    struct hak_shelf *shelf = hak_shelf_of(heap, index);
    unsigned coarse = hak_classes[index].coarse;
    bool is_few = hak_load_relaxed(&hak_rare_blocks) == HAK_RARE_BLOCKS;
    if (coarse == index || (is_few && hak_class_is_middle(index))) { /* a coarser block of some KiB wastes pages itself */
        shelf->rare = HAK_RARE_GREW;
        return hak_visit_any(bytes, heap, index);
    }
    rare_asked(shelf);
    HAK_COUNT(&heap->counters, visit_coarse, 1);
    return HAK_LIKELY(is_few) ? take_coarse(bytes, heap, coarse) : rare_among_many(bytes, heap, index);
}

/* --- before a page more --- */

/* The caller counts on an alignment where it asks for its multiple (front/aligned.c), and states a size that hak_check_size() compares: no other
 * class will do. */
HAK_NOINLINE void *hak_borrow_before(size_t bytes, struct hak_heap *heap, unsigned index) {
    enum { LEAST_BYTES = 128 };
    uint32_t own = hak_classes[index].block_bytes, most = own + (own / 2 > LEAST_BYTES ? own / 2 : LEAST_BYTES);
    HAK_ASSERT(bytes > 0);
    uint32_t align = hak_size_align(bytes, &hak_classes[index]);
    if (most >= bytes * 2) most = (uint32_t)bytes * 2 - 1;
    for (unsigned c = index + 1; c <= HAK_BORROW_CLASS_MAX && hak_classes[c].block_bytes <= most; c++) {
        if (hak_class_align(&hak_classes[c]) < align) continue;
        struct hak_bin *bin = hak_bin_at(heap, c);
        uint64_t word = bin->word;
        bool is_kept = hak_class_is_middle(c) && hak_middle_count(hak_middle_of(heap, c)) != 0;
        if (!is_kept && word == 0) continue;
        heap->shelf[index].rare += HAK_RARE_BORROWED;
        HAK_COUNT(&heap->counters, visit_coarse, 1);
        if (is_kept) return visit_middle(bytes, heap, c);
        bin->word = word & (word - 1);
        return bin->base + hak_word_first(word) * (size_t)hak_classes[c].block_bytes;
    }
    return NULL;
}
