/* lines.c - see lines.h. */
#include "slab/lines.h"

#include "base/word.h"
#include "memory/region.h"

enum {
    NEAR_FIRST = HAK_CHUNK_GRANULES, /* one word of bits for the 64 lines of owners' in two pages */
    FAR_FIRST = HAK_FAR_FIRST_LINE,
    FAR_WORDS = HAK_FAR_LINES / 64,
    NEAR_OWN = 1, FAR_OWN = 2,       /* the first lines of each part: the bits themselves */
};
HAK_STATIC(FAR_WORDS * 8 <= FAR_OWN * HAK_LINE && FAR_FIRST == NEAR_FIRST + 2 * 64);
HAK_STATIC(FAR_FIRST + 2 * HAK_FAR_LINES <= HAK_META_BYTES / HAK_LINE);

static hak_atomic_u64 *bits_of(size_t chunk, unsigned first_line) {
    return (hak_atomic_u64 *)(void *)(hak_meta_at(chunk) + first_line * HAK_LINE);
}
static unsigned owner_lines(unsigned word_count) { return (32 + word_count * 8 + HAK_LINE - 1) / HAK_LINE; }

/* The first of `count` lines of the 64 that a word stands for, at one of the `allowed`; -1 if there are none. */
static int row_take(hak_atomic_u64 *word, unsigned count, unsigned own, uint64_t allowed) {
    uint64_t used = hak_load_relaxed(word), ours = own ? hak_word_mask(0, own) : 0;
    for (;;) {
        uint64_t starts = hak_word_runs(~used & ~ours, count) & allowed;
        if (!starts) return -1;
        if (hak_cas_weak(word, &used, used | hak_word_mask(hak_word_first(starts), count))) return (int)hak_word_first(starts);
    }
}

/* The i-th of the owners' lines in the near pages, half a page each. */
static unsigned near_line(unsigned i) { return NEAR_FIRST + i + (i & HAK_NEAR_LINES); }
static unsigned near_index(unsigned line) {
    unsigned i = line - NEAR_FIRST;
    return (i & (HAK_NEAR_LINES - 1)) + (i / 2 & HAK_NEAR_LINES);
}

unsigned hak_lines_take(size_t chunk, unsigned word_count) {
    unsigned count = owner_lines(word_count);
    uint64_t in_page = hak_word_mask(0, HAK_NEAR_LINES + 1 - count);
    int i = row_take(bits_of(chunk, NEAR_FIRST), count, NEAR_OWN, in_page | in_page << HAK_NEAR_LINES);
    if (HAK_LIKELY(i >= 0)) return near_line((unsigned)i);
    for (unsigned w = 0; w < FAR_WORDS; w++) {
        i = row_take(&bits_of(chunk, FAR_FIRST)[w], count, w == 0 ? FAR_OWN : 0, ~UINT64_C(0));
        if (i >= 0) return FAR_FIRST + w * 64 + (unsigned)i;
    }
    return 0;
}

void hak_lines_give(size_t chunk, unsigned word_count, unsigned owner_line) {
    uint64_t row = hak_word_mask(0, owner_lines(word_count));
    if (owner_line < FAR_FIRST) {
        hak_and(bits_of(chunk, NEAR_FIRST), ~(row << near_index(owner_line)));
        return;
    }
    unsigned line = owner_line - FAR_FIRST;
    hak_and(&bits_of(chunk, FAR_FIRST)[line / 64], ~(row << line % 64));
}
