/* slab.c - cut and end slabs, hand out and take back their blocks. See slab.h. */
#include "slab/slab.h"

#include "memory/ahead.h"
#include "memory/huge.h"
#include "memory/purge.h"
#include "slab/filled.h"
#include "slab/lines.h"
#include "slab/secure.h"

#include <string.h>

hak_atomic_u32 hak_epoch = 1;
__attribute__((noreturn)) void (*hak_slab_misuse)(const char *function, const void *block);

/* --- cutting --- */

static void records_write(struct hak_slab *slab, struct hak_heap *heap, struct hak_row *row) {
    const struct hak_class *class = hak_slab_class(slab);
    size_t granule = hak_slab_granule(slab);
    for (unsigned i = 0; i < class->granules; i++) {
        struct hak_granule *record = hak_granule_at(granule + i);
        __atomic_store_n(&record->words, row->word, __ATOMIC_RELEASE); /* a walk may look: hak_large_held() */
        record->start = row->start;
        __atomic_store_n(&record->reciprocal, class->reciprocal, __ATOMIC_RELAXED); /* a stale name may look (heap/kept.c) */
        hak_store_release(&record->owner, hak_slab_owner_mark(heap, slab->class_index)); /* last: pairs with the owner's load in free() */
    }
}

/* A granule's pages are the system's in its chunk, and a slab's, which may be larger, in the slab: `each` of the one make one of the other. */
static unsigned pages_spread(uint64_t pages, unsigned each) {
    unsigned spread = 0;
    for (; each > 1 && pages; pages &= pages - 1) spread |= (unsigned)hak_word_mask(hak_word_first(pages) * each, each);
    return each > 1 ? spread : (unsigned)pages;
}
static uint64_t pages_gathered(uint64_t pages, unsigned each) {
    uint64_t gathered = 0;
    for (uint64_t whole = hak_word_runs(pages, each) & hak_word_multiples(each); whole; whole &= whole - 1)
        gathered |= UINT64_C(1) << hak_word_first(whole) / each;
    return gathered;
}

/* The pages that are not resident: of granules that are not dirty all, of others those that the last slab there left so. The slab's
 * header says it from now on. */
static uint64_t pages_absent_take(size_t granule, const struct hak_class *class) {
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES), shift = hak_slab_page_shift(class), each = 1u << (HAK_GRANULE_SHIFT - shift);
    uint64_t mask = hak_word_mask(first, class->granules), dirty = hak_load_relaxed(&chunk->dirty) & mask;
    if (HAK_UNLIKELY(hak_load_relaxed(&chunk->unseen) & mask)) hak_chunk_look(granule / HAK_CHUNK_GRANULES, mask);
    uint64_t partial = hak_load_relaxed(&chunk->partial) & mask, pages = hak_slab_pages(class);
    for (uint64_t left = dirty; left; left &= left - 1) {
        unsigned at = hak_word_first(left);
        uint64_t absent = 0;
        if (partial >> at & 1) absent = pages_gathered(hak_load_relaxed(&chunk->absent[at]), 1u << (shift - hak_region.page_shift));
        pages &= ~((hak_word_mask(0, each) & ~absent) << (at - first) * each);
    }
    hak_chunk_forget_absent(chunk, mask);
    for (uint64_t left = hak_load_relaxed(&chunk->ever) & mask; left; left &= left - 1) { /* what is there now is not touched again */
        unsigned at = hak_word_first(left);
        uint64_t here = pages >> (at - first) * each & hak_word_mask(0, each);
        hak_chunk_take_gone(chunk, at, ~pages_spread(here, 1u << (shift - hak_region.page_shift)));
    }
    return pages;
}

/* Of a slab's span, with the granules behind it that nobody may touch. */
static size_t span_granules(const struct hak_class *class) { return class->granules + hak_secure_guard_granules(); }

/* What lies behind a slab is closed; where that would be too many mappings, it can be touched as ever. To the bound and to limits it is not used. */
static void guards_close(struct hak_slab *slab, size_t behind, size_t guards) {
    struct hak_chunk *chunk = hak_chunk_at(behind / HAK_CHUNK_GRANULES);
    uint64_t mask = hak_word_mask((unsigned)(behind % HAK_CHUNK_GRANULES), (unsigned)guards);
    struct hak_range range = { hak_granule_address(behind), guards << HAK_GRANULE_SHIFT };
    slab->is_guarded = hak_secure_close(range.start, range.bytes);
    if (hak_load_relaxed(&chunk->dirty) & mask && hak_secure_returns(range, slab->is_guarded)) { /* what others left there would stay resident */
        hak_chunk_forget_absent(chunk, mask);
        hak_chunk_forget_blank(chunk, mask);
        hak_and(&chunk->dirty, ~mask);
    }
    hak_free_note_plain(0, -(int64_t)guards);
}

/* Under the secure level free memory of slabs reads as zeros, but what one is cut from may hold what others left. */
static HAK_COLD void secure_cut(struct hak_slab *slab, const struct hak_class *class) {
    size_t guards = hak_secure_guard_granules();
    unsigned shift = slab->page_shift;
    if (guards != 0) guards_close(slab, hak_slab_granule(slab) + class->granules, guards);
    for (uint64_t left = hak_slab_pages(class) & ~slab->returned; left;) {
        unsigned first = hak_word_first(left), count = ~(left >> first) ? hak_word_first(~(left >> first)) : 64;
        memset(hak_slab_base(slab) + ((size_t)first << shift), 0, (size_t)count << shift);
        left &= ~hak_word_mask(first, count);
    }
}

/* Under the secure level nothing lies in front of a block that is not one. */
static size_t slab_lead(size_t granule, const struct hak_class *class) {
    return HAK_UNLIKELY(hak_secure_is_on()) ? 0 : hak_span_lead(granule, class->lead_steps);
}

/* Claims the header at `granule` and makes it a slab, unless mail for an earlier life of it is still under way. */
static bool slab_make(size_t granule, struct hak_heap *heap, unsigned class_index) {
    size_t number = granule / HAK_CHUNK_GRANULES;
    struct hak_slab *slab = hak_slab_at(granule);
    const struct hak_class *class = &hak_classes[class_index];
    if (!hak_slab_claim(slab)) return false;
    /* seq_cst both: a stranger sets mailed, then reads owner; so he sees us, or we see him */
    atomic_store(&slab->owner, heap);
    unsigned owner_line = 0;
    if (hak_slab_mailed(slab) || !(owner_line = hak_lines_take(number, class->word_count))) {
        hak_slab_unclaim(slab);
        return false;
    }
    slab->owner_line = (uint16_t)owner_line;
    slab->remote_line = (uint16_t)(owner_line + hak_lines_behind(owner_line * HAK_LINE));
    slab->class_index = (uint8_t)class_index;
    slab->place = HAK_SLAB_CURRENT;
    hak_store_relaxed(&slab->cursor, 0);
    slab->pending = slab->exact = slab->idle = 0;
    slab->last_word = (class->word_count - 1u) & 63;
    slab->page_shift = (uint8_t)hak_slab_page_shift(class);
    slab->next = slab->prev = 0;
    slab->returned_since = slab->is_guarded = 0;
    slab->returned = pages_absent_take(granule, class);
    slab->whole = slab->returned == 0;
    hak_absent_note((int64_t)hak_word_count(slab->returned) << hak_slab_page_shift(class));
    slab->cold = 0;
    slab->frontier = 0;
    hak_store_relaxed(&slab->noted, 0);
    if (HAK_UNLIKELY(hak_secure_is_on())) secure_cut(slab, class);
    hak_store_relaxed(&slab->settled, 0);
    struct hak_row *row = hak_slab_row(slab);
    row->start = hak_granule_address(granule) + slab_lead(granule, class);
    row->slab = slab;
    row->block_bytes = class->block_bytes;
    row->class_index = (uint16_t)class_index;
    row->step = class->step;
    hak_row_arm(row, 0, 1);
    for (unsigned i = 0; i < class->word_count; i++) {
        uint64_t bits = hak_class_valid(class, i);
        if (class->surplus && i == class->capacity / 64) bits |= UINT64_C(1) << class->capacity % 64;
        hak_store_relaxed(&row->word[i], bits);
    }
    records_write(slab, heap, row);
    hak_store_relaxed(&hak_chunk_at(number)->rows_used, 1);
    hak_or(&hak_chunk_at(number)->slabs, UINT64_C(1) << granule % HAK_CHUNK_GRANULES);
    hak_slab_unclaim(slab);
    return true;
}

/* Where slabs of a class ended, by granule + 1, the last ones behind; a line each. A new one there finds the pages that it will use resident,
 * and no others: what another class leaves behind it would neither use nor be counted as having. Hints: who comes late finds the place taken. */
enum { PLACES = HAK_LINE / sizeof(uint32_t) };
static HAK_ALIGNED(HAK_LINE) hak_atomic_u32 ended[HAK_CLASS_COUNT][PLACES];

static void ended_note(unsigned class_index, size_t granule) {
    hak_atomic_u32 *place = ended[hak_class_plain(class_index)];
    unsigned i = 0;
    while (i < PLACES && hak_load_relaxed(&place[i])) i++;
    if (i == PLACES) i = (unsigned)(granule / hak_classes[class_index].granules) % PLACES;
    hak_store_relaxed(&place[i], (uint32_t)granule + 1);
}

struct hak_slab *hak_slab_cut_at(struct hak_heap *heap, unsigned class_index, size_t granule) {
    size_t count = span_granules(&hak_classes[class_index]);
    if (!hak_span_take_again(granule, count)) return NULL;
    if (slab_make(granule, heap, class_index)) return hak_slab_at(granule);
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    return NULL;
}

struct hak_slab *hak_slab_cut_again(struct hak_heap *heap, unsigned class_index) {
    hak_atomic_u32 *place = ended[hak_class_plain(class_index)];
    struct hak_slab *slab = NULL;
    for (unsigned i = PLACES; i-- > 0 && !slab;) {
        if (!hak_load_relaxed(&place[i])) continue;
        size_t granule = (size_t)hak_exchange(&place[i], 0) - 1;
        if (granule != SIZE_MAX) slab = hak_slab_cut_at(heap, class_index, granule);
    }
    return slab;
}

struct hak_slab *hak_slab_cut(struct hak_heap *heap, unsigned class_index, enum hak_growth growth) {
    enum { TRIES = 64 }; /* in a forked child many in a row may have mail under way, from and to threads that vanished */
    size_t count = span_granules(&hak_classes[class_index]);
    size_t refused[TRIES];
    unsigned tries = 0;
    struct hak_slab *slab = HAK_UNLIKELY(hak_load_relaxed(&hak_filled)) ? hak_filled_cut(heap, class_index, growth) : NULL;
    while (tries < TRIES && !slab) {
        size_t granule = hak_span_take_dense(count, growth);
        if (granule == HAK_NO_GRANULE) break;
        if (slab_make(granule, heap, class_index)) slab = hak_slab_at(granule);
        else refused[tries++] = granule;
    }
    while (tries > 0) hak_span_give(refused[--tries], count, HAK_SPAN_AS_IT_WAS);
    return slab;
}

HAK_COLD struct hak_slab *hak_slab_cut_ahead(struct hak_heap *heap, unsigned class_index) {
    size_t count = span_granules(&hak_classes[class_index]), granule = hak_ahead_take(count);
    if (granule == HAK_NO_GRANULE) return NULL;
    if (slab_make(granule, heap, class_index)) return hak_slab_at(granule);
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    return NULL;
}

void (*hak_slab_on_death)(struct hak_slab *slab);
void (*hak_slab_on_look)(struct hak_slab *slab);

/* The watched block was freed; what it was is being forgotten. */
static void sample_is_dead(struct hak_slab *slab) {
    if (HAK_LIKELY(!hak_load_relaxed(&slab->sample))) return;
    void (*told)(struct hak_slab *) = __atomic_load_n(&hak_slab_on_death, __ATOMIC_RELAXED);
    if (told) told(slab);
    hak_store_relaxed(&slab->sample, 0);
}

/* Its free pages are in use again. */
static void uncount(struct hak_slab *slab, int64_t *sum) {
    unsigned shift = slab->page_shift;
    hak_free_note_in(sum, -((int64_t)hak_load_relaxed(&slab->counted_pages) << shift));
    hak_store_relaxed(&slab->counted_pages, 0);
}

/* Granules that are absent wholly are clean; of the others it is noted which pages are. */
static void span_give(size_t granule, const struct hak_class *class, uint64_t absent) {
    unsigned shift = hak_slab_page_shift(class), each = 1u << (HAK_GRANULE_SHIFT - shift);
    uint64_t all = hak_word_mask(0, each);
    for (unsigned i = 0, run; i < class->granules; i += run) {
        bool is_clean = (absent >> i * each & all) == all;
        for (run = 0; i + run < class->granules; run++) {
            uint64_t here = absent >> (i + run) * each & all;
            if (is_clean != (here == all)) break;
            if (here && !is_clean) hak_granule_leave_absent(granule + i + run, pages_spread(here, 1u << (shift - hak_region.page_shift)));
        }
        hak_span_give(granule + i, run, is_clean ? HAK_SPAN_CLEAN : HAK_SPAN_DIRTY);
    }
}

/* All its blocks are free: was one written to since? What went back reads as zeros. */
static HAK_COLD void secure_end(const struct hak_slab *slab, const struct hak_class *class) {
    size_t bytes = class->block_bytes;
    for (size_t i = 0; i < class->capacity; i++) {
        size_t start = i * bytes, last = (start + bytes - 1) >> slab->page_shift, first = start >> slab->page_shift;
        if (slab->returned & hak_word_mask((unsigned)first, (unsigned)(last - first + 1))) continue;
        size_t byte = hak_secure_written(hak_slab_start(slab) + start, bytes);
        if (HAK_UNLIKELY(byte != SIZE_MAX)) hak_secure_misuse("free", hak_slab_start(slab) + start, bytes, byte, true);
    }
}

/* What lay behind a slab is anybody's again; where the kernel would not open it, nobody's. The slab has ended: who vanishes by a fork loses this,
 * where its child would end the slab once more. */
static HAK_COLD void guards_end(size_t behind, bool is_guarded) {
    size_t guards = hak_secure_guard_granules();
    if (guards == 0) return;
    hak_free_note_plain(0, (int64_t)guards);
    if (is_guarded && !hak_secure_open(hak_granule_address(behind), guards << HAK_GRANULE_SHIFT, 1)) return;
    hak_span_give(behind, guards, HAK_SPAN_AS_IT_WAS);
}

void hak_slab_release_claimed(struct hak_slab *slab, int64_t *sum) {
    const struct hak_class *class = hak_slab_class(slab);
    size_t granule = hak_slab_granule(slab), number = granule / HAK_CHUNK_GRANULES;
    HAK_ASSERT(hak_row_out(hak_slab_row(slab)) == 0 && slab->next == 0 && slab->prev == 0 && !slab->pending);
    for (unsigned i = 0; i < class->word_count; i++) { /* what a stranger gave back when all is free was free already */
        uint64_t twice = hak_load_relaxed(&hak_slab_remote(slab)[i]);
        if (HAK_UNLIKELY(twice))
            hak_slab_misuse("free", hak_slab_start(slab) + (i * 64 + hak_word_first(twice)) * (size_t)class->block_bytes);
    }
    if (HAK_UNLIKELY(hak_secure_is_on())) secure_end(slab, class);
    hak_and(&hak_chunk_at(number)->slabs, ~(UINT64_C(1) << granule % HAK_CHUNK_GRANULES));
    for (unsigned i = 0; i < class->granules; i++) hak_store_release(&hak_granule_at(granule + i)->owner, NULL);
#ifdef HAK_DEBUG
    hak_slab_row(slab)->class_index = UINT16_MAX; /* whoever reads the row from here on reads another's */
#endif
    hak_lines_give(number, class->word_count, slab->owner_line);
    if (HAK_UNLIKELY(hak_load_relaxed(&slab->settled))) hak_slab_settle(slab, 0); /* by a look while its owner took the last in */
    if (hak_load_relaxed(&slab->counted_pages)) uncount(slab, sum);
    sample_is_dead(slab);
    slab->place = HAK_SLAB_NONE;
    uint64_t returned = slab->returned;
    hak_absent_note(-((int64_t)hak_word_count(returned) << hak_slab_page_shift(class)));
    unsigned index = slab->class_index;
    bool is_guarded = slab->is_guarded;
    hak_slab_unclaim(slab);
    span_give(granule, class, returned);
    if (HAK_UNLIKELY(hak_secure_is_on())) guards_end(granule + class->granules, is_guarded);
    if (!(returned & 1)) ended_note(index, granule);
}

void hak_slab_records_own(struct hak_slab *slab, struct hak_heap *heap) {
    size_t granule = hak_slab_granule(slab);
    for (unsigned i = 0; i < hak_slab_class(slab)->granules; i++)
        hak_store_release(&hak_granule_at(granule + i)->owner, hak_slab_owner_mark(heap, slab->class_index));
}

void hak_slab_give_claimed(struct hak_slab *slab, struct hak_heap *heap) {
    atomic_store(&slab->owner, heap);
    hak_slab_records_own(slab, heap);
}

/* --- an empty chunk's metadata --- */

/* Headers are type-stable: a stranger may still be about to notify an ended slab, mail for one may lie in a mailbox,
 * linked through its header, and a third thread may hold the claim of one, about to look whether it lives. To claim
 * each and set its `mailed`, as they do, keeps some away and finds the others; then zeros are what a header begins
 * with. Modelled in test/model/tests/wipe.rs. */
void hak_slab_chunk_empty(size_t number) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    unsigned count = 0;
    for (; count < HAK_CHUNK_GRANULES; count++) {
        struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + count);
        if (!hak_slab_claim(slab)) break;
        if (atomic_exchange(&slab->mailed, epoch) != epoch) continue;
        hak_slab_unclaim(slab);
        break;
    }
    bool all = count == HAK_CHUNK_GRANULES;
    size_t page = (size_t)1 << hak_region.page_shift;
    uintptr_t start = hak_meta_at(number), end = start + HAK_META_BYTES;
    if (!all) start = hak_round_up(start + HAK_CHUNK_GRANULES * HAK_LINE, page); /* the rows may go at any time */
    struct hak_range range = { (void *)start, end - start };
    uint64_t calls = 0;
    size_t done = hak_os_return(&range, 1, &calls);
    hak_add(&hak_purge.return_calls, calls);
    if (all && done) return; /* the claims with them */
    while (count > 0) {
        struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + --count);
        atomic_store(&slab->mailed, 0);
        hak_slab_unclaim(slab);
    }
}

/* --- taking and collecting --- */

/* Of the slab's `pages` the part in each granule, as the system's: they went back, or (the bytes of those that had) are used again. */
static HAK_COLD uint64_t pages_gone(struct hak_slab *slab, uint64_t pages, bool went_back) {
    size_t granule = hak_slab_granule(slab);
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    unsigned shift = slab->page_shift, each = 1u << (HAK_GRANULE_SHIFT - shift), count = 0;
    for (unsigned at = (unsigned)(granule % HAK_CHUNK_GRANULES); pages; at++, pages = each < 64 ? pages >> each : 0) {
        unsigned here = pages_spread(pages & hak_word_mask(0, each), 1u << (shift - hak_region.page_shift));
        if (!here) continue;
        if (went_back) hak_chunk_note_gone(chunk, at, here);
        else count += hak_word_count(hak_chunk_take_gone(chunk, at, here));
    }
    return (uint64_t)count << hak_region.page_shift;
}

/* They are resident again. */
static HAK_NOINLINE void pages_used(struct hak_slab *slab, uint64_t pages) {
    uint64_t touched = slab->returned & pages;
    slab->returned &= ~pages;
    hak_absent_note(-((int64_t)hak_word_count(touched) << slab->page_shift));
    hak_purge_note_grown((int64_t)hak_word_count(touched) << slab->page_shift);
    struct hak_chunk *chunk = hak_chunk_at(hak_slab_granule(slab) / HAK_CHUNK_GRANULES);
    if (!hak_load_relaxed(&chunk->ever)) return;
    uint64_t again = pages_gone(slab, touched, false);
    if (again) hak_purge_note_retouch(again, hak_load_relaxed(&chunk->returned_ms));
}

/* The blocks from `first` to `last` are being handed out. */
static void touch(struct hak_slab *slab, const struct hak_row *row, unsigned first, unsigned last) {
    size_t lead = hak_row_lead(row), start = lead + (size_t)first * row->block_bytes, end = lead + ((size_t)last + 1) * row->block_bytes - 1;
    unsigned page = (unsigned)(start >> slab->page_shift), page_last = (unsigned)(end >> slab->page_shift);
    uint64_t pages = hak_word_mask(page, page_last - page + 1);
    slab->cold &= ~pages;
    if (HAK_UNLIKELY(slab->returned & pages)) pages_used(slab, pages);
}

/* Of word i, the free blocks that were handed out before; the slab's last word is not asked for. */
HAK_INLINE uint64_t word_ready(const struct hak_slab *slab, const struct hak_row *row, unsigned i) {
    unsigned from = slab->frontier > i * 64 ? slab->frontier - i * 64 : 0;
    return hak_load_relaxed(&row->word[i]) & hak_word_mask(0, from < 64 ? from : 64);
}

/* Of the free blocks of word *index, those that were handed out before. If they are few, those of another word that has
 * more; and if no word has enough, a page of further ones too. First touch costs a fault a page, so that a visit a page
 * costs little beside it. */
static uint64_t open_page(struct hak_slab *slab, const struct hak_row *row, unsigned *index, uint64_t word,
                          uint64_t *opened_bytes, unsigned *frontier) {
    enum { STEP_BYTES = 4096, WORDS_MAX = 16 };
    unsigned i = *index, from = slab->frontier > i * 64 ? slab->frontier - i * 64 : 0;
    uint64_t ready = word & hak_word_mask(0, from), further = word & ~ready;
    uint32_t few = hak_load_relaxed(&hak_shares[row->class_index].few);
    uint32_t enough = hak_slab_enough(few, opened_bytes ? *opened_bytes : UINT64_MAX);
    if (!further || (ready && hak_word_count(ready) >= enough)) return ready;
    unsigned most = enough - 1, best = i, free_count = slab->frontier - hak_row_out(row); /* of those handed out before */
    for (unsigned k = 0; free_count > most && k * 64 < slab->frontier && k < slab->last_word && k < WORDS_MAX; k++) {
        unsigned count = hak_word_count(word_ready(slab, row, k));
        if (count > most) most = count, best = k;
    }
    if (best != i) {
        hak_store_relaxed(&slab->cursor, (uint8_t)best);
        *index = best;
        return word_ready(slab, row, best);
    }
    if (!opened_bytes) return 0;
    unsigned step = row->block_bytes < STEP_BYTES ? STEP_BYTES / row->block_bytes : 1, next = hak_word_first(further);
    unsigned to = next + step < 64 ? next + step : 64;
    *frontier = i * 64 + to;
    *opened_bytes += (uint64_t)(to - next) * row->block_bytes;
    return word & hak_word_mask(0, to);
}

/* The words behind the cursor, then those before it; moves no cursor. -1: none. */
static int word_further(const struct hak_slab *slab, const struct hak_row *row, unsigned index) {
    unsigned last = slab->last_word, i = index;
    for (unsigned tried = 0; tried < last; tried++) {
        i = i == last ? 0 : i + 1;
        uint64_t word = hak_load_relaxed(&row->word[i]);
        if (i == last) word &= hak_class_valid(hak_slab_class(slab), i);
        if (word) return (int)i;
    }
    return -1;
}

uint64_t hak_slab_take_claimed(struct hak_slab *slab, struct hak_row *row, uint32_t *count, int64_t *sum, uint64_t *opened_bytes) {
    unsigned i = hak_load_relaxed(&slab->cursor);
    uint64_t all = hak_load_relaxed(&row->word[i]), word = all;
    if (i == slab->last_word) word &= hak_class_valid(hak_slab_class(slab), i);
    if (HAK_UNLIKELY(word == 0)) {
        int further = word_further(slab, row, i);
        if (further < 0) return 0;
        i = (unsigned)further;
        hak_store_relaxed(&slab->cursor, (uint8_t)i);
        all = word = hak_load_relaxed(&row->word[i]);
        if (i == slab->last_word) word &= hak_class_valid(hak_slab_class(slab), i);
    }
    unsigned before = slab->frontier, frontier = before;
    if (frontier < i * 64 + 64) {
        word = open_page(slab, row, &i, word, opened_bytes, &frontier);
        if (word == 0) return 0;
        all = hak_load_relaxed(&row->word[i]);
    }
    uint32_t window = hak_load_relaxed(&hak_shares[row->class_index].blocks);
    struct hak_word_part part = { word, 64 };
    if (window < 64) part = hak_word_lowest(word, window);
    else if (~word) part.count = hak_word_count(word);
    if (HAK_UNLIKELY(hak_load_relaxed(&slab->counted_pages))) uncount(slab, sum);
    bool is_opened = frontier != before; /* all of it is touched: what is left of it goes out without a look */
    if (is_opened || hak_slab_absent_claimed(slab) | slab->cold)
        touch(slab, row, i * 64 + hak_word_first(word), i * 64 + hak_word_last(is_opened ? word : part.bits));
    if (is_opened) {
        atomic_signal_fence(memory_order_seq_cst); /* who vanishes here by a fork: used pages that are not open, never the other way */
        slab->frontier = (uint16_t)frontier;
    }
    unsigned sample = hak_slab_sample_block(slab);
    if (HAK_UNLIKELY(sample / 64 == i && part.bits >> sample % 64 & 1)) sample_is_dead(slab);
    hak_slab_taken_claimed(slab, row, i, all & ~part.bits, (uint32_t)part.count);
    *count = (uint32_t)part.count;
    return part.bits;
}

uint32_t hak_slab_collect(struct hak_slab *slab) {
    struct hak_row *row = hak_slab_row(slab);
    hak_atomic_u64 *remote = hak_slab_remote(slab);
    uint32_t collected = 0;
    for (unsigned i = 0; i < hak_slab_class(slab)->word_count; i++) {
        if (!atomic_load(&remote[i])) continue; /* seq_cst: behind the exchange of `mailed`, see give() in heap/mail.c */
        uint64_t given = hak_exchange(&remote[i], 0); /* acquire: the strangers' last writes to the blocks */
        uint64_t own = hak_load_relaxed(&row->word[i]);
        if (HAK_UNLIKELY(own & given)) {
            size_t block = i * 64 + hak_word_first(own & given);
            hak_slab_misuse("free", hak_slab_start(slab) + block * row->block_bytes);
        }
        hak_store_release(&row->word[i], own | given);
        collected += hak_word_count(given);
    }
    return collected;
}

/* --- pages --- */

static bool all_set(const hak_atomic_u64 *words, const hak_atomic_u64 *remote, unsigned first, unsigned last) {
    for (unsigned i = first / 64; i <= last / 64; i++) {
        unsigned low = i == first / 64 ? first % 64 : 0, high = i == last / 64 ? last % 64 : 63;
        uint64_t wanted = hak_word_mask(low, high - low + 1);
        /* remote first: what the owner moves from remote to words between the two reads is missed, never
         * seen where it is not; acquire both: the freeing thread's last writes come before the return */
        uint64_t set = hak_load_acquire(&remote[i]);
        set |= hak_load_acquire(&words[i]);
        if (~set & wanted) return false;
    }
    return true;
}

uint64_t hak_slab_free_pages_claimed(const struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    const struct hak_row *row = hak_slab_row(slab);
    const hak_atomic_u64 *words = row->word, *remote = hak_slab_remote(slab);
    unsigned shift = hak_slab_page_shift(class), pages = 1u << (class->slab_shift - shift);
    uint64_t found = 0, lead = hak_row_lead(row);
    for (unsigned page = 0; page < pages; page++) {
        uint64_t start = page ? ((uint64_t)page << shift) - lead : 0, end = ((uint64_t)(page + 1) << shift) - lead - 1;
        unsigned first = (unsigned)((unsigned __int128)start * class->reciprocal >> 64);
        unsigned last = (unsigned)((unsigned __int128)end * class->reciprocal >> 64);
        if (last >= class->capacity) last = class->capacity - 1u;
        if (first > last || all_set(words, remote, first, last)) found |= UINT64_C(1) << page;
    }
    return found;
}

static HAK_COLD size_t pages_return(struct hak_slab *slab, uint64_t pages, bool by_sweep) {
    struct hak_range ranges[32];
    size_t count = 0;
    uint64_t done = 0;
    unsigned shift = slab->page_shift;
    for (uint64_t left = pages; left && count < 32;) {
        unsigned first = hak_word_first(left);
        uint64_t gap = ~(left >> first);
        unsigned length = gap ? hak_word_first(gap) : 64;
        ranges[count].start = hak_slab_base(slab) + ((size_t)first << shift);
        ranges[count].bytes = (size_t)length << shift;
        hak_huge_leave(ranges[count].start, ranges[count].bytes);
        count++;
        done |= hak_word_mask(first, length);
        left &= ~done;
    }
    if (!count || !hak_purge_return(ranges, count, 0, by_sweep)) return 0;
    slab->returned |= done;
    hak_absent_note((int64_t)hak_word_count(done) << shift);
    slab->cold &= ~done;
    slab->returned_since = 1;
    pages_gone(slab, done, true);
    size_t granule = hak_slab_granule(slab);
    hak_store_relaxed(&hak_chunk_at(granule / HAK_CHUNK_GRANULES)->returned_ms, hak_purge_stamp(by_sweep));
    return (size_t)hak_word_count(done) << shift;
}

static void pages_count(struct hak_slab *slab, unsigned count, int64_t *sum) {
    unsigned before = hak_load_relaxed(&slab->counted_pages);
    if (count == before) return;
    hak_free_note_in(sum, ((int64_t)count - before) * (1 << slab->page_shift));
    hak_store_relaxed(&slab->counted_pages, (uint16_t)count);
}

/* Some went back: no longer free memory that is resident, and not used again either. */
static void pages_uncount_returned(struct hak_slab *slab, unsigned count, int64_t *sum) {
    unsigned before = hak_load_relaxed(&slab->counted_pages);
    if (before > count) hak_spare_pass_by((uint64_t)(before - count) << slab->page_shift);
    pages_count(slab, count, sum);
}

size_t hak_slab_account_claimed(struct hak_slab *slab, uint64_t free_pages, int64_t *sum) {
    uint64_t pages = free_pages & hak_slab_pages(hak_slab_class(slab)) & ~slab->returned;
    pages_count(slab, hak_word_count(pages), sum);
    if (!pages || !hak_purge_is_over()) return 0;
    size_t bytes = pages_return(slab, pages, false);
    pages_uncount_returned(slab, hak_word_count(pages & ~slab->returned), sum);
    return bytes;
}

HAK_COLD void hak_slab_settle(struct hak_slab *slab, uint32_t count) {
    enum { UNITS = UINT8_MAX };
    const struct hak_class *class = hak_slab_class(slab);
    unsigned units = (count * UNITS + class->capacity - 1u) / class->capacity, before = atomic_exchange(&slab->settled, (uint8_t)units);
    int64_t all = hak_given_bytes(class->capacity, HAK_BATCH_BYTES / class->block_bytes);
    if (units != before) hak_given_settle(((int64_t)units - before) * ((all + UNITS - 1) / UNITS));
}

void hak_slab_estimate_claimed(struct hak_slab *slab, int64_t *sum) {
    const struct hak_class *class = hak_slab_class(slab);
    size_t free_bytes = (size_t)(class->capacity - hak_row_out(hak_slab_row(slab))) * class->block_bytes;
    unsigned count = (unsigned)(free_bytes >> hak_slab_page_shift(class));
    unsigned most = hak_word_count(hak_slab_pages(class) & ~slab->returned);
    pages_count(slab, count < most ? count : most, sum);
}

size_t hak_slab_sweep_claimed(struct hak_slab *slab, bool all) {
    uint64_t pages = hak_slab_free_pages_claimed(slab) & ~slab->returned;
    uint64_t wanted = all ? pages : pages & slab->cold;
    size_t bytes = wanted ? pages_return(slab, wanted, !all) : 0;
    slab->cold = pages & ~slab->returned;
    pages_uncount_returned(slab, hak_word_count(slab->cold), NULL);
    return bytes;
}

#ifdef HAK_DEBUG
void hak_slab_check(const struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    const struct hak_row *row = hak_slab_row(slab);
    uint32_t free_count = 0;
    for (unsigned i = 0; i < class->word_count; i++)
        free_count += hak_word_count(hak_load_relaxed(&row->word[i]) & hak_class_valid(class, i));
    /* a handler's longjmp out of free() may leave `out` higher by one: the slab then never ends, no more */
    HAK_ASSERT(free_count + hak_row_out(row) >= class->capacity);
    HAK_ASSERT(row->class_index == slab->class_index && row->block_bytes == class->block_bytes);
    HAK_ASSERT(slab->place != HAK_SLAB_NONE && hak_slab_live(hak_slab_granule(slab)));
}
#endif
