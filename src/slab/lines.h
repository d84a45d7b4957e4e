/* lines.h - the metadata of a chunk in cache lines: 64 slab headers, then rows of bits.
 *
 * Owns:      which lines of a chunk's 128 KiB of metadata are used. Lines 0-63 are the headers, one for each
 *            granule. Each slab has an owner's row and, a constant behind it, a strangers' row: a stranger finds his word from
 *            the owner's, and reads no header; and the strangers' row, always left zero, is found zero.
 *            In two pages behind the headers both are near, 32 lines of owners', then theirs of strangers: a chunk of few slabs
 *            has two pages of metadata, not three. All further owners' rows lie together, and all strangers' behind these, so
 *            that a fork's child that frees dirties few pages. The first lines of each part hold this room's own bits.
 * Threads:   any; each take and give is one atomic operation on one word.
 * Invariant: there is room for the rows of 64 slabs of any classes in the far part alone: a word of 64 lines is blocked for a
 *            row of nine lines by seven rows at least, and 64 slabs are fewer than 7 * 12.
 */
#ifndef HAK_SLAB_LINES_H
#define HAK_SLAB_LINES_H

#include "base/attr.h"

/* How far behind an owner's row the strangers' row of the same slab begins. */
enum { HAK_NEAR_LINES = 32, HAK_FAR_LINES = 13 * 64, HAK_FAR_FIRST_LINE = 64 + 2 * 2 * HAK_NEAR_LINES };

/* For an owner's row, or word, at `offset` bytes of a chunk's metadata. */
HAK_INLINE unsigned hak_lines_behind(size_t offset) {
    return offset < HAK_FAR_FIRST_LINE * HAK_LINE ? HAK_NEAR_LINES : HAK_FAR_LINES;
}

/* Rows for `word_count` words of bits each: the owner's line; 0 when there is no room. */
unsigned hak_lines_take(size_t chunk, unsigned word_count);
void hak_lines_give(size_t chunk, unsigned word_count, unsigned owner_line);

#endif
