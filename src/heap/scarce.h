/* scarce.h - visits that find few blocks, one after the other.
 *
 * A heap turns to the lowest word of a slab that has blocks, and opens a page when no word has. So a class of which a program holds just
 * what is open, 64 blocks of a word or all 1,024 of a slab, and frees one for each that it asks for, had a visit for each malloc: 12 ns
 * instead of 4, 37 where all words were gone through for it. Here the class turns to a word that has gathered some meanwhile, to a page
 * more, or to the next slab; what is freed in those that it left is enough when it comes back.
 *
 * Owns:      the heap's counts of such visits.
 * Threads:   the owner.
 */
#ifndef HAK_HEAP_SCARCE_H
#define HAK_HEAP_SCARCE_H

#include "heap/heap.h"
#include "rules/options.h"

/* So many of a full slab's blocks are free when it comes back to its list. */
HAK_INLINE uint32_t hak_relist_blocks(const struct hak_class *class) {
    uint32_t share = class->capacity / (uint32_t)HAK_OPT(relist_share);
    return share ? share : 1;
}

/* A visit found few blocks, of a class that is asked for often: a short program does not even come to look. */
enum { HAK_SCARCE_BLOCKS = 4, HAK_SCARCE_FROM = 4096 };
/* Of visits that take the usual way the one is noted that looks at the clock, about every sixteenth: in random mixes a branch more cost all of them 4%. */
enum { HAK_SCARCE_SAMPLED = 16 };
HAK_INLINE bool hak_scarce_is(const struct hak_shelf *shelf, uint32_t count) {
    return HAK_UNLIKELY(count < HAK_SCARCE_BLOCKS) && HAK_UNLIKELY(shelf->handed >= HAK_SCARCE_FROM);
}

/* A visit, which stands for so many, has put that few blocks of the row's slab into its bin, but for `block`, which is returned. After enough of them
 * the slab's cursor is elsewhere, or the slab is not in use any more and the bin is empty. The row may be of a slab that is not in use yet. */
void *hak_scarce_note(struct hak_heap *heap, struct hak_row *row, void *block, unsigned visits);

#endif
