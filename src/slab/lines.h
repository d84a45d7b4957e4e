/* lines.h - the metadata of a chunk in cache lines: 64 slab headers, then rows of bits.
 *
 * Owns:      which lines of a chunk's 128 KiB of metadata are used. Lines 0-63 are the headers, one for each
 *            granule; the four lines behind them hold this room's own bits; owners' rows lie in the first
 *            half, strangers' rows in the second, so that a fork's child that frees dirties few pages, and
 *            so that a stranger's row, always left zero, is found zero. Both in step: a stranger finds its word
 *            from the owner's by adding a constant, and reads no header.
 * Threads:   any; each take and give is one atomic operation on one word.
 * Invariant: there is room for the rows of 64 slabs of any classes: a word of 64 lines is blocked for a row of
 *            nine lines by seven rows at least, and 64 slabs are fewer than 7 * 14.
 */
#ifndef HAK_SLAB_LINES_H
#define HAK_SLAB_LINES_H

#include "base/attr.h"

/* How far behind an owner's row the strangers' row of the same slab begins. */
enum { HAK_REMOTE_LINES = 15 * 64 };

/* Rows for `word_count` words of bits each: the owner's line; 0 when there is no room. */
unsigned hak_lines_take(size_t chunk, unsigned word_count);
void hak_lines_give(size_t chunk, unsigned word_count, unsigned owner_line);

#endif
