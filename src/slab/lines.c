/* lines.c - see lines.h. */
#include "slab/lines.h"

#include "base/word.h"
#include "memory/region.h"

enum {
    HEADER_LINES = HAK_CHUNK_GRANULES,
    WORDS = (HAK_META_BYTES / HAK_LINE - HEADER_LINES) / 64, /* 31 words of 64 lines behind the headers */
    OWN_LINES = 4,                                           /* the first lines of word 0: the bits themselves */
    OWNER_WORDS = 15,
};
HAK_STATIC(WORDS * 8 <= OWN_LINES * HAK_LINE);

static hak_atomic_u64 *bits_of(size_t chunk) {
    return (hak_atomic_u64 *)(void *)(hak_meta_at(chunk) + HEADER_LINES * HAK_LINE);
}
static unsigned owner_lines(unsigned word_count) { return (32 + word_count * 8 + HAK_LINE - 1) / HAK_LINE; }
static unsigned remote_lines(unsigned word_count) { return (word_count * 8 + HAK_LINE - 1) / HAK_LINE; }

static unsigned take(size_t chunk, unsigned from, unsigned to, unsigned count) {
    for (unsigned i = from; i < to; i++) {
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

static void give(size_t chunk, unsigned line, unsigned count) {
    line -= HEADER_LINES;
    hak_and(&bits_of(chunk)[line / 64], ~hak_word_mask(line % 64, count));
}

bool hak_lines_take(size_t chunk, unsigned word_count, unsigned *owner_line, unsigned *remote_line) {
    *owner_line = take(chunk, 0, OWNER_WORDS, owner_lines(word_count));
    if (!*owner_line) return false;
    *remote_line = take(chunk, OWNER_WORDS, WORDS, remote_lines(word_count));
    if (*remote_line) return true;
    give(chunk, *owner_line, owner_lines(word_count));
    return false;
}

void hak_lines_give(size_t chunk, unsigned word_count, unsigned owner_line, unsigned remote_line) {
    give(chunk, owner_line, owner_lines(word_count));
    give(chunk, remote_line, remote_lines(word_count));
}
