/* walk.h - the blocks that the program holds, shown one after another: hak_walk() of hakmem.h. See heap/census.c.
 *
 * Threads:   any. Nothing is held while the caller's function runs: it may allocate, free and leave by longjmp.
 */
#ifndef HAK_HEAP_WALK_H
#define HAK_HEAP_WALK_H

#include "base/attr.h"
#include "hakmem/hakmem.h"
#include "slab/slab.h"

struct hak_walk {
    int (*each)(const struct hak_held *held, void *context);
    void *context;
    struct hak_family *family; /* of heap/family.h: its blocks alone; NULL: all */
};

HAK_INLINE int hak_walk_show(const struct hak_walk *walk, void *block, size_t bytes, bool is_large, bool is_guarded) {
    struct hak_held held = { block, bytes, is_large, is_guarded };
    return walk->each(&held, walk->context);
}

/* All of them, those of who hangs on heap/hooks.h among them, until `each` gives another number than 0: that number. */
int hak_walk_all(const struct hak_walk *walk);

/* --- for who owns slabs' heaps, has put back their bins, and knows that nobody frees their blocks: heap/family.c --- */

enum { HAK_SLAB_WORDS_MAX = 64, HAK_APART_WORDS = 64 };

/* By a hash of slabs, bits: blocks of it are in letters or batches. */
struct hak_apart {
    uint64_t bit[HAK_APART_WORDS];
    bool with_letters; /* a family's blocks are never in one */
};
void hak_apart_look(struct hak_apart *apart, bool with_letters);
/* What the program holds of the slab, as bits. What others freed before, and have in their batches, it does not hold. */
void hak_held_by_program(struct hak_slab *slab, const struct hak_apart *apart, uint64_t live[HAK_SLAB_WORDS_MAX]);

#endif
