/* family.h - heaps as the program's own objects (hak_heap_t of hakmem.h): each is a family of heaps, one for each thread that uses it.
 *
 * An instance is a heap like a thread's own, but no thread's hak_self: who allocates from the family names it, and its thread frees to it
 * directly. All else that a heap is (bins, visits, mail, strangers, the sweep, fork) is the same for it. When its thread ends it is
 * a DEAD one of its family, and the next thread that uses the family takes it over. It is in no list of dead heaps: no thread is born
 * with it, no ordinary heap takes a slab of it, and it takes none of theirs. So a slab's owner says whose its blocks are. A large block's record says it
 * (HAK_LARGE_FAMILY), with the name of an instance.
 *
 * Owns:      struct hak_family, in granules of their own that are never given back, type-stable; which heap is whose instance.
 * Threads:   any. Who makes `home` NULL by CAS, or a DEAD one BUSY, owns an instance: its thread at its end, who clears the family, who finds
 *            the thread gone. What empties or ends a family is called by one thread while no other uses it: the program sees to that.
 * Invariant: heap->home == a thread's own heap  =>  that thread owns the instance, and nobody else until home is NULL.
 *            taken_granules == those of the instances' slabs and of the family's large blocks, and what is being taken.
 * Spare:     an instance whose family ended waits for the next one, for ever an instance: a large block's name never becomes another's. A slab that
 *            it still has holds blocks that lie in some thread's batch; while there is one nobody gets it.
 * No letters: blocks in letters are forwarded by third threads, and then are in neither place for a moment. Who clears must find each.
 */
#ifndef HAK_HEAP_FAMILY_H
#define HAK_HEAP_FAMILY_H

#include "heap/heap.h"
#include "memory/large.h"
#include "slab/secure.h"

enum { HAK_FAMILY_SLOT_BITS = 8, HAK_FAMILY_SLOTS = 1 << HAK_FAMILY_SLOT_BITS, HAK_FAMILY_PROBES = 8 };
struct HAK_ALIGNED(HAK_LINE) hak_family {
    hak_atomic_u32 is_used;
    hak_atomic_u32 has_any;        /* 1: there was an instance */
    hak_atomic_u32 has_ended;      /* 1: some instance lost its thread */
    hak_atomic_i64 taken_granules, limit_granules; /* 0: no limit */
    HAK_ALIGNED(HAK_LINE) _Atomic(struct hak_heap *) slot[HAK_FAMILY_SLOTS]; /* hints, by the threads' own heaps */
};

extern hak_atomic_u32 hak_family_any, hak_family_limited; /* 1: there was one; one with a limit */
extern hak_atomic_u32 hak_family_pages; /* granules that families lie in */

/* 0: no limit. NULL: memory is short. */
struct hak_family *hak_family_new(uint64_t limit_bytes);
void hak_family_free(struct hak_family *family); /* nobody uses it: never did, or all of it has ended */
HAK_INLINE bool hak_family_is_used(const struct hak_family *family) { return hak_load_relaxed(&((struct hak_family *)(uintptr_t)family)->is_used); }

/* Calls a function for each instance of the family (NULL: for the spares), or of the thread whose own heap this is, and perhaps for others, until it
 * gives true. */
void hak_family_each(struct hak_family *family, hak_heap_look_function *function, void *context);
void hak_family_each_of_home(struct hak_heap *home, hak_heap_look_function *function, void *context);

/* The instance of the thread whose own heap this is: NULL, none is known; find makes one, and gives NULL when memory is short. */
HAK_INLINE bool hak_family_fits(struct hak_heap *heap, struct hak_family *family, const struct hak_heap *home) {
    return heap && hak_load_relaxed(&heap->home) == home && hak_load_relaxed(&heap->family) == family;
}
HAK_INLINE unsigned hak_family_hash(const struct hak_heap *home) { return home->index * UINT32_C(0x9e3779b9) >> (32 - HAK_FAMILY_SLOT_BITS); }
HAK_INLINE struct hak_heap *hak_family_look(struct hak_family *family, const struct hak_heap *home) {
    struct hak_heap *heap = hak_load_relaxed(&family->slot[hak_family_hash(home)]);
    return HAK_LIKELY(hak_family_fits(heap, family, home)) ? heap : NULL;
}
struct hak_heap *hak_family_find(struct hak_family *family, struct hak_heap *home);
/* The thread of this heap ends, or vanished: the caller owns what it had. */
void hak_family_give_up(struct hak_heap *home);

/* Whose is the large block, or the slab of this heap? NULL: no family's. */
struct hak_family *hak_family_of_large(const struct hak_granule *record);
HAK_INLINE struct hak_family *hak_family_of_heap(struct hak_heap *heap) { return heap ? hak_load_relaxed(&heap->family) : NULL; }

/* --- the limit --- */

/* So many granules more; false: that would exceed it, and nothing has changed. */
bool hak_family_reserve(struct hak_family *family, size_t granules);
HAK_INLINE void hak_family_note(struct hak_family *family, int64_t granules) { hak_add(&family->taken_granules, granules); }

/* A slab of the instance is about to be cut (is_refused: not within the limit), could not be (of any heap), ends, or becomes another's of the family. */
void hak_family_slab_begins(struct hak_heap *heap, size_t granules);
void hak_family_slab_fails(struct hak_heap *heap, size_t granules);
/* begins() once more, for one that ends before it was used. False: not within the limit; then fails() is due as it was. */
bool hak_family_slab_again(struct hak_heap *heap, size_t granules);
void hak_family_slab_ends(struct hak_heap *heap, const struct hak_slab *slab);
void hak_family_slab_moves(struct hak_heap *from, struct hak_heap *to);
HAK_INLINE bool hak_family_has_ended(struct hak_heap *heap) { return hak_load_relaxed(&hak_load_relaxed(&heap->family)->has_ended); }

/* What counts of a large block: not what nobody may touch behind it. */
HAK_INLINE size_t hak_family_granules(const struct hak_granule *record) { return hak_large_granules(record) - hak_secure_guard_granules(); }

/* A family's large block was ended by hak_large_end(): it is nobody's. */
void hak_family_large_ended(struct hak_granule *record);
/* One is about to have `wanted` granules. Begin: false, the limit refuses. End: its record, perhaps another; NULL: it stayed as it was. */
struct hak_family_resize {
    struct hak_family *family; /* NULL: no family's */
    uint32_t name;
    size_t before, reserved;
};
bool hak_family_resize_begin(struct hak_family_resize *resize, const struct hak_granule *record, size_t wanted);
void hak_family_resize_end(struct hak_family_resize *resize, struct hak_granule *record);

/* The limit is reached: what the calling thread's instance and those without a thread hold free goes back. */
void hak_family_collect(struct hak_family *family, struct hak_heap *heap);

/* --- all of it: no other thread uses the family meanwhile --- */

/* All its blocks are free. */
void hak_family_clear(struct hak_family *family);
/* And there is no such family any more. */
void hak_family_destroy(struct hak_family *family);
/* There is no such family any more; its blocks are those of `heap`, the calling thread's own, or its instance of the secure level's family. */
void hak_family_delete(struct hak_family *family, struct hak_heap *heap);

/* In a forked child: what vanished threads were about to take is not taken. */
void hak_family_recount(void);

#endif
