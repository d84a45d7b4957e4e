/* lines.c - see lines.h. */
#include "slab/lines.h"

#include "base/word.h"
#include "memory/region.h"

enum {
    HEADER_LINES = HAK_CHUNK_GRANULES,
    OWNER_WORDS = HAK_REMOTE_LINES / 64, /* words of 64 lines behind the headers; then as many for strangers */
    OWN_LINES = 4,                       /* the first lines of word 0: the bits themselves */
};
HAK_STATIC(OWNER_WORDS * 8 <= OWN_LINES * HAK_LINE);
HAK_STATIC(HEADER_LINES + 2 * HAK_REMOTE_LINES <= HAK_META_BYTES / HAK_LINE);

static hak_atomic_u64 *bits_of(size_t chunk) {
    return (hak_atomic_u64 *)(void *)(hak_meta_at(chunk) + HEADER_LINES * HAK_LINE);
}
static unsigned owner_lines(unsigned word_count) { return (32 + word_count * 8 + HAK_LINE - 1) / HAK_LINE; }

unsigned hak_lines_take(size_t chunk, unsigned word_count) {
    unsigned count = owner_lines(word_count);
    for (unsigned i = 0; i < OWNER_WORDS; i++) {
        hak_atomic_u64 *word = &bits_of(chunk)[i];
        uint64_t used = hak_load_relaxed(word);
        for (;;) {
            uint64_t starts = hak_word_runs(~used & (i == 0 ? ~hak_word_mask(0, OWN_LINES) : ~UINT64_C(0)), count);
            if (!starts) break;
            if (hak_cas_weak(word, &used, used | hak_word_mask(hak_word_first(starts), count)))
                return HEADER_LINES + i * 64 + hak_word_first(starts);
        }
    }
    return 0;
}

void hak_lines_give(size_t chunk, unsigned word_count, unsigned owner_line) {
    unsigned line = owner_line - HEADER_LINES;
    hak_and(&bits_of(chunk)[line / 64], ~hak_word_mask(line % 64, owner_lines(word_count)));
}
