/* letters.c - see letters.h. */
#include "heap/letters.h"

#include "base/multiply.h"
#include "heap/hooks.h"
#include "memory/large.h"

/* Where eight lines begin that a stranger writes: of the first four heaps eight each, of sixteen two each. */
static unsigned lines_of(const struct hak_heap *self) { return self->index * 8 + self->index / 4; }

bool hak_letter_put(struct hak_heap *self, struct hak_heap *owner, char *block) {
    enum { LINES = 8, TRIES = 3, PAUSE = 16 };
    if (HAK_UNLIKELY(!hak_load_relaxed(&owner->takes_letters))) return false; /* in a line that is written when its thread ends */
    size_t hash = (uintptr_t)owner / HAK_LINE * UINT64_C(0x9e3779b97f4a7c15) >> 60;
    HAK_STATIC(sizeof self->letter_at == 1 << (64 - 60));
    uint8_t *at = &self->letter_at[hash], *pause = &self->letter_pause[hash];
    if (HAK_UNLIKELY(*pause > 0)) {
        --*pause;
        return false;
    }
    for (unsigned tries = 0; tries < TRIES; tries++, *at = (*at + 1) % LINES) {
        unsigned line = (lines_of(self) + *at) % HAK_LETTER_LINES;
        _Atomic(char *) *place = owner->letter[line].block;
        char *first = NULL; /* never what was not there: an empty place is empty again when the line was read */
        for (unsigned i = 0; i < HAK_LETTER_BLOCKS; i++) {
            char *seen = hak_load_relaxed(&place[i]);
            if (HAK_UNLIKELY(seen == block)) hak_slab_misuse("free", block);
            /* seq_cst, all of them here and where they are read: the owner empties a line from its first block on. If that is still there
             * after this one is, he has yet to come to this one, and who put it there sees to it that he comes. */
            if (seen || !atomic_compare_exchange_strong(&place[i], &seen, block)) {
                if (i == 0) first = seen;
                continue;
            }
            if (i == 0 || atomic_load(&place[0]) != first) atomic_fetch_or(&owner->letters, UINT32_C(1) << line);
            HAK_COUNT(&self->counters, letter_sent, 1);
            return true;
        }
    }
    *pause = PAUSE; /* its owner waits, or has much to do: no more of those lines are looked at for nothing than that */
    return false;
}

/* The next block of a line; NULL when it has none from there on. */
static char *take(struct hak_letter *letter, unsigned *from) {
    while (*from < HAK_LETTER_BLOCKS) {
        _Atomic(char *) *place = &letter->block[(*from)++];
        char *block = atomic_load(place) ? atomic_exchange(place, NULL) : NULL;
        if (block) return block;
    }
    return NULL;
}

/* The block is out, so its slab lives. If it does not, or no block begins there, the block was freed twice, and the slab ended by the other free. */
static const struct hak_granule *record_of(char *block, unsigned *index) {
    const struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    struct hak_heap *owner = hak_load_acquire(&record->owner);
    bool is_heap = owner != NULL && owner != HAK_LARGE && owner != HAK_WATCHED && (uintptr_t)owner % HAK_LINE == 0;
    uint64_t rest = 0;
    if (HAK_LIKELY(is_heap)) *index = (unsigned)hak_multiply((uint64_t)(block - record->start), &record->reciprocal, &rest);
    if (HAK_UNLIKELY(!is_heap || rest >= record->reciprocal)) hak_slab_misuse("free", block);
    return record;
}

static void read_one(struct hak_heap *heap, char *block) {
    unsigned index;
    const struct hak_granule *record = record_of(block, &index);
    if (HAK_UNLIKELY(hak_load_acquire(&record->owner) != heap)) { /* the slab changed hands */
        hak_stranger_gather(heap, record, index);
        return;
    }
    struct hak_row *row = hak_row_of(record->words);
    hak_atomic_u64 *word = &row->word[index / 64];
    uint64_t own = hak_load_relaxed(word), bit = UINT64_C(1) << index % 64;
    if (HAK_UNLIKELY(own & bit)) hak_slab_misuse("free", block);
    hak_store_release(word, own | bit); /* as in front/fast.h */
    HAK_COUNT(&heap->counters, letter_read, 1);
    if (HAK_UNLIKELY(--row->countdown == 0)) hak_event(heap, row->slab);
}

void hak_letters_read(struct hak_heap *heap) {
    heap->had_letters = 1;
    for (uint32_t left = hak_load_relaxed(&heap->letters); left; left &= left - 1) {
        unsigned line = hak_word_first(left), from = 0;
        atomic_fetch_and(&heap->letters, ~(UINT32_C(1) << line)); /* by the line: who leaves this by a longjmp hides one */
        for (char *block; (block = take(&heap->letter[line], &from)) != NULL;) read_one(heap, block);
    }
    if (HAK_UNLIKELY(heap != hak_self) && heap->batches) hak_batch_flush(heap); /* nobody else would */
}

HAK_COLD void hak_letters_forward(struct hak_heap *self, struct hak_heap *heap) {
    for (unsigned line = 0; line < HAK_LETTER_LINES; line++) {
        unsigned from = 0, index;
        if (hak_load_relaxed(&heap->letters) >> line & 1) atomic_fetch_and(&heap->letters, ~(UINT32_C(1) << line));
        for (char *block; (block = take(&heap->letter[line], &from)) != NULL;) {
            const struct hak_granule *record = record_of(block, &index);
            hak_stranger_gather(self, record, index);
        }
    }
    hak_batch_flush(self); /* it may have its next chores late, or never */
}

/* All its blocks are free. One that is in a letter, too, was freed twice; later nobody could tell. */
HAK_COLD void hak_letters_slab_ends(struct hak_heap *heap, const struct hak_slab *slab) {
    const char *start = hak_slab_base(slab);
    size_t bytes = (size_t)1 << hak_slab_class(slab)->slab_shift;
    for (uint32_t left = hak_load_relaxed(&heap->letters); left; left &= left - 1) {
        _Atomic(char *) *place = heap->letter[hak_word_first(left)].block;
        for (unsigned i = 0; i < HAK_LETTER_BLOCKS; i++) {
            char *block = hak_load_relaxed(&place[i]);
            if (HAK_UNLIKELY((size_t)(block - start) < bytes)) hak_slab_misuse("free", block);
        }
    }
}

HAK_COLD void hak_letters_count(const struct hak_heap *heap, uint64_t live[HAK_CLASS_COUNT]) {
    for (unsigned line = 0; line < HAK_LETTER_LINES; line++) {
        for (unsigned i = 0; i < HAK_LETTER_BLOCKS; i++) {
            const char *block = hak_load_acquire(&heap->letter[line].block[i]);
            if (block) live[hak_class_plain(hak_slab_at(hak_granule_of(hak_granule_at(hak_granule_of(block))->start))->class_index)]--;
        }
    }
}
