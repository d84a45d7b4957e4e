/* census.c - what the process holds, from the bits: counted, by class and by page, or shown block by block.
 *
 * Live is what is clear in the owner's and the strangers' row, less what waits elsewhere: in a bin, above 1 KiB kept by its owner, in a
 * letter, in a batch. Bins and kept blocks are found by the slab's owner. Which slab's blocks lie in letters and batches, any heap's, is asked
 * once: for the others no heap is looked through.
 *
 * Threads:   any; exact while no other thread allocates, else each number was true a moment ago. Slabs are
 *            read under their claim, so that none ends meanwhile. A slab's live blocks are copied, and shown without it.
 */
#include "heap/letters.h"

#include "heap/family.h"
#include "heap/hooks.h"
#include "heap/walk.h"
#include "memory/large.h"
#include "memory/outside.h"
#include "slab/secure.h"
#include "os/os.h"

#include <string.h>

/* What another heap's owner writes by plain stores is read as it stands. */
#if defined(__SANITIZE_THREAD__)
#define READS_PLAIN __attribute__((no_sanitize("thread"), noinline))
#else
#define READS_PLAIN
#endif

static void heap_add(struct hak_heap *heap, void *context) {
    struct hak_census *census = context;
    census->heap_count++;
    census->dead_heap_count += hak_load_relaxed(&heap->state) == HAK_HEAP_DEAD;
    hak_counters_add(&census->counters, &heap->counters);
    bool is_secure = hak_secure_is_on(); /* then each block says itself whether it is live */
    for (unsigned index = 1; index < hak_shelf_end(heap); index++) {
        unsigned c = hak_class_plain(index); /* a pool counts as its class */
        uint64_t in_bin = hak_word_count(__atomic_load_n(&hak_bin_of(heap, index)->word, __ATOMIC_RELAXED));
        census->handed[c] += __atomic_load_n(&hak_shelf_of(heap, index)->handed, __ATOMIC_RELAXED) - in_bin;
        census->live[c] -= is_secure ? 0 : in_bin;
        if (!hak_class_is_middle(index)) continue;
        const struct hak_middle *middle = hak_middle_of(heap, c);
        census->handed[c] += __atomic_load_n(&middle->handed, __ATOMIC_RELAXED);
        census->live[c] -= hak_middle_count(middle);
    }
    if (HAK_UNLIKELY(is_secure)) return;
    hak_letters_count(heap, census->live);
    for (unsigned i = 0; i < HAK_BATCHES; i++) {
        const struct hak_batch *batch = &heap->batch[i];
        if (batch->mask && batch->slab) census->live[hak_class_plain(batch->slab->class_index)] -= hak_word_count(batch->mask);
    }
}

/* A third thread, as a sweep, has a slab for some microseconds. NULL: it lives no more, or somebody left it claimed. */
static struct hak_slab *slab_claim(size_t granule) {
    enum { TURNS_MAX = 200 }; /* some 20 ms */
    struct hak_slab *slab = hak_slab_at(granule);
    for (unsigned turn = 0; !hak_slab_claim(slab); turn++) {
        if (turn == TURNS_MAX || !hak_slab_live(granule)) return NULL;
        hak_os_yield(turn);
    }
    if (hak_slab_live(granule)) return slab;
    hak_slab_unclaim(slab);
    return NULL;
}

static uint64_t word_free(const struct hak_row *row, const hak_atomic_u64 *remote, unsigned i) {
    return hak_load_acquire(&remote[i]) | hak_load_acquire(&row->word[i]);
}

void hak_census_take(struct hak_census *census) {
    memset(census, 0, sizeof *census);
    hak_heap_each(heap_add, census);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) census->handed[c] += hak_load_relaxed(&hak_handed_ended[c]);
    void (*on_census)(struct hak_census *) = HAK_HOOK(census);
    if (on_census) on_census(census);
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            struct hak_slab *slab = slab_claim(number * HAK_CHUNK_GRANULES + hak_word_first(live));
            if (!slab) continue;
            const struct hak_class *class = hak_slab_class(slab);
            const struct hak_row *row = hak_slab_row(slab);
            const hak_atomic_u64 *remote = hak_slab_remote(slab);
            unsigned c = hak_class_plain(slab->class_index);
            census->slabs[c]++;
            for (unsigned i = 0; i < class->word_count; i++) {
                uint64_t live = ~word_free(row, remote, i) & hak_class_valid(class, i);
                if (HAK_UNLIKELY(hak_secure_is_on())) live = hak_secure_held(row->start, row->block_bytes, i, live);
                census->live[c] += hak_word_count(live);
            }
            hak_slab_unclaim(slab);
        }
    }
}

/* --- one by one --- */

static unsigned apart_hash(const struct hak_slab *slab) {
    HAK_STATIC(HAK_APART_WORDS * 64 == 1 << (64 - 52));
    return (unsigned)((uintptr_t)slab / HAK_LINE * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}
static void apart_set(struct hak_apart *apart, const struct hak_slab *slab) {
    apart->bit[apart_hash(slab) / 64] |= UINT64_C(1) << apart_hash(slab) % 64;
}
static bool apart_has(const struct hak_apart *apart, const struct hak_slab *slab) {
    return apart->bit[apart_hash(slab) / 64] >> apart_hash(slab) % 64 & 1;
}
static READS_PLAIN bool apart_note(struct hak_heap *heap, void *context) {
    struct hak_apart *apart = context;
    for (unsigned i = 0; apart->with_letters && i < HAK_LETTER_LINES * HAK_LETTER_BLOCKS; i++) {
        const char *block = hak_load_acquire(&heap->letter[i / HAK_LETTER_BLOCKS].block[i % HAK_LETTER_BLOCKS]);
        if (block) apart_set(apart, hak_slab_at(hak_granule_of(hak_granule_at(hak_granule_of(block))->start)));
    }
    for (unsigned i = 0; i < HAK_BATCHES; i++) /* acquire: pairs with batch_flush() of heap/mail.c, as below */
        if (__atomic_load_n(&heap->batch[i].mask, __ATOMIC_ACQUIRE)) apart_set(apart, heap->batch[i].slab);
    const struct hak_batch *flying = hak_load_acquire(&heap->flying);
    if (flying) apart_set(apart, flying->slab);
    return false;
}

/* A slab's blocks that the program holds, as bits. */
struct held {
    uint64_t live[HAK_SLAB_WORDS_MAX];
    char *start;  /* of its blocks */
    size_t bytes; /* of them all */
    const hak_atomic_u64 *words;
    const struct hak_class *class;
    uint64_t returned; /* hak_slab's */
    bool with_letters;
};
static void held_drop(struct held *held, const char *block) {
    size_t offset = (size_t)(block - held->start), index = offset / held->class->block_bytes;
    if (offset < held->bytes) held->live[index / 64] &= ~(UINT64_C(1) << index % 64);
}
static READS_PLAIN void held_drop_own(struct held *held, struct hak_heap *heap, unsigned shelf_index) {
    if (shelf_index >= hak_shelf_end(heap)) return;
    const struct hak_bin *bin = hak_bin_of(heap, shelf_index);
    uint64_t word = __atomic_load_n(&bin->word, __ATOMIC_ACQUIRE); /* pairs with into_bin() of heap/visit.c */
    size_t offset = (size_t)(__atomic_load_n(&bin->base, __ATOMIC_RELAXED) - held->start);
    if (word && offset < held->bytes) held->live[offset / held->class->block_bytes / 64] &= ~word;
    if (!hak_class_is_middle(shelf_index)) return;
    const struct hak_middle *middle = hak_middle_of(heap, shelf_index);
    for (unsigned i = 0; i < hak_middle_count(middle) && i < HAK_MIDDLE_BLOCKS; i++)
        held_drop(held, hak_middle_block(middle, i));
}
static void held_drop_word(struct held *held, const hak_atomic_u64 *word, uint64_t mask) {
    size_t at = ((uintptr_t)word - (uintptr_t)held->words) / sizeof *held->words;
    if (at < held->class->word_count) held->live[at] &= ~mask;
}
static READS_PLAIN bool held_drop_apart(struct hak_heap *heap, void *context) {
    struct held *held = context;
    for (unsigned i = 0; held->with_letters && i < HAK_LETTER_LINES * HAK_LETTER_BLOCKS; i++)
        held_drop(held, hak_load_acquire(&heap->letter[i / HAK_LETTER_BLOCKS].block[i % HAK_LETTER_BLOCKS]));
    for (unsigned i = 0; i < HAK_BATCHES; i++) {
        uint64_t mask = __atomic_load_n(&heap->batch[i].mask, __ATOMIC_ACQUIRE); /* first: see batch_begin() */
        held_drop_word(held, __atomic_load_n(&heap->batch[i].word, __ATOMIC_ACQUIRE), mask);
    }
    const struct hak_batch *flying = hak_load_acquire(&heap->flying);
    if (!flying) return false;
    uint64_t mask = hak_load_acquire(&heap->flying_mask);
    const hak_atomic_u64 *word = __atomic_load_n(&flying->word, __ATOMIC_ACQUIRE);
    if (hak_load_acquire(&heap->flying) == flying) held_drop_word(held, word, mask); /* else it is in its row */
    return false;
}

/* The rows come last: what goes from elsewhere into a row meanwhile is not taken for live, and the other way only visits go, which the
 * claim keeps out. */
static void held_fill(struct held *held, struct hak_slab *slab, const struct hak_apart *apart) {
    const struct hak_row *row = hak_slab_row(slab);
    const hak_atomic_u64 *remote = hak_slab_remote(slab);
    held->class = hak_slab_class(slab);
    held->start = row->start;
    held->bytes = (size_t)held->class->capacity * held->class->block_bytes;
    held->words = row->word;
    for (unsigned i = 0; i < held->class->word_count; i++) held->live[i] = hak_class_valid(held->class, i);
    held_drop_own(held, hak_load_acquire(&slab->owner), slab->class_index);
    held->with_letters = apart->with_letters;
    if (apart_has(apart, slab)) hak_heap_each_own(held_drop_apart, held);
    for (unsigned i = 0; i < held->class->word_count; i++) {
        held->live[i] &= ~word_free(row, remote, i);
        if (HAK_UNLIKELY(hak_secure_is_on())) held->live[i] = hak_secure_held(held->start, held->class->block_bytes, i, held->live[i]);
    }
}

static bool held_read(struct held *held, size_t granule, const struct hak_apart *apart) {
    struct hak_slab *slab = slab_claim(granule);
    if (!slab) return false;
    held_fill(held, slab, apart);
    held->returned = slab->returned;
    hak_slab_unclaim(slab);
    return true;
}

void hak_apart_look(struct hak_apart *apart, bool with_letters) {
    memset(apart, 0, sizeof *apart);
    apart->with_letters = with_letters;
    hak_heap_each_own(apart_note, apart); /* instances are no thread's hak_self: nobody frees by them, and they get no letters */
}

void hak_held_by_program(struct hak_slab *slab, const struct hak_apart *apart, uint64_t live[HAK_SLAB_WORDS_MAX]) {
    struct held held;
    held_fill(&held, slab, apart);
    memcpy(live, held.live, held.class->word_count * sizeof *live);
}

static bool is_wanted(const struct hak_walk *walk, const struct hak_family *family) { return !walk->family || walk->family == family; }

/* Under the secure level what was asked for, of a slab that lives: as it ends its pages may be closed. */
static HAK_COLD size_t asked_for(size_t granule, const char *block, size_t bytes) {
    struct hak_slab *slab = slab_claim(granule);
    if (!slab) return bytes - HAK_SECURE_WORD_BYTES;
    size_t asked = hak_slab_class(slab)->block_bytes == bytes ? hak_secure_asked(block, bytes) : bytes - HAK_SECURE_WORD_BYTES;
    hak_slab_unclaim(slab);
    return asked;
}

static int small_show(const struct hak_walk *walk, size_t granule, char *block, size_t bytes) {
    if (HAK_UNLIKELY(hak_secure_is_on())) bytes = asked_for(granule, block, bytes);
    return hak_walk_show(walk, block, bytes, false, false);
}

static int slab_walk(const struct hak_walk *walk, size_t granule, const struct hak_apart *apart) {
    struct held held;
    int result = 0;
    if (!is_wanted(walk, hak_family_of_heap(hak_load_acquire(&hak_slab_at(granule)->owner)))) return 0;
    if (!held_read(&held, granule, apart)) return 0;
    size_t bytes = held.class->block_bytes;
    for (unsigned i = 0; i < held.class->word_count; i++)
        for (uint64_t live = held.live[i]; live && !result; live &= live - 1)
            result = small_show(walk, granule, held.start + (i * 64 + hak_word_first(live)) * bytes, bytes);
    return result;
}

static int large_walk(const struct hak_walk *walk, size_t granule) {
    size_t bytes = hak_large_held(hak_granule_at(granule));
    if (walk->family && bytes && !is_wanted(walk, hak_family_of_large(hak_granule_at(granule)))) return 0;
    return bytes ? hak_walk_show(walk, hak_granule_address(granule) + hak_large_lead(bytes), bytes, true, false) : 0;
}

static int chunk_walk(const struct hak_walk *walk, size_t number, const struct hak_apart *apart) {
    int result = 0;
    if (!hak_unit_ready(number)) return 0;
    size_t first = number * HAK_CHUNK_GRANULES;
    for (uint64_t slabs = hak_chunk_slabs(number); slabs && !result; slabs &= slabs - 1)
        result = slab_walk(walk, first + hak_word_first(slabs), apart);
    for (uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used); used && !result; used &= used - 1)
        result = large_walk(walk, first + hak_word_first(used));
    return result;
}

int hak_walk_all(const struct hak_walk *walk) {
    struct hak_apart apart;
    int result = 0;
    hak_apart_look(&apart, walk->family == NULL);
    size_t top = hak_load_acquire(&hak_chunk_top), row = 0, bytes;
    for (size_t number = 0; number < top && !result; number++) result = chunk_walk(walk, number, &apart);
    if (walk->family) return result;
    for (void *block; !result && (block = hak_outside_next(&row, &bytes)) != NULL;) result = hak_walk_show(walk, block, bytes, true, false);
    int (*on_walk)(const struct hak_walk *) = HAK_HOOK(walk);
    return result || !on_walk ? result : on_walk(walk);
}

/* --- by page --- */

enum { SLAB_PAGES_MAX = 256, SPARSE_SHARE = 4 };

/* Of each page of the slab, the bytes that live on it. */
static void pages_fill(uint32_t live_bytes[SLAB_PAGES_MAX], const struct held *held) {
    size_t page_bytes = (size_t)1 << hak_region.page_shift, bytes = held->class->block_bytes, lead = (uintptr_t)held->start % HAK_GRANULE_BYTES;
    memset(live_bytes, 0, SLAB_PAGES_MAX * sizeof *live_bytes);
    for (unsigned i = 0; i < held->class->word_count; i++)
        for (uint64_t live = held->live[i]; live; live &= live - 1) {
            size_t from = lead + (i * 64 + hak_word_first(live)) * bytes, end = from + bytes;
            for (size_t until; from < end; from = until) {
                until = hak_round_down(from, page_bytes) + page_bytes;
                if (until > end) until = end;
                live_bytes[from >> hak_region.page_shift] += (uint32_t)(until - from);
            }
        }
}

/* Where the kernel does not say what is resident: all that did not go back. */
static bool page_is_absent(const struct held *held, const unsigned char *resident, size_t page) {
    if (resident) return !(resident[page] & 1);
    return held->returned >> (page << hak_region.page_shift >> hak_slab_page_shift(held->class)) & 1;
}

static void slab_count_pages(struct hak_census_pages *pages, size_t granule, const struct hak_apart *apart) {
    HAK_STATIC((int)SLAB_PAGES_MAX <= (int)HAK_OS_RESIDENT_PAGES_MAX);
    struct held held;
    unsigned char resident[SLAB_PAGES_MAX];
    uint32_t live_bytes[SLAB_PAGES_MAX];
    if (!held_read(&held, granule, apart)) return;
    pages_fill(live_bytes, &held);
    size_t slab_bytes = (size_t)1 << held.class->slab_shift;
    bool is_known = hak_os_resident(hak_granule_address(granule), slab_bytes, resident);
    uint64_t page_bytes = UINT64_C(1) << hak_region.page_shift;
    unsigned c = hak_class_plain((unsigned)(held.class - hak_classes));
    for (size_t page = 0; page < slab_bytes >> hak_region.page_shift; page++) {
        if (page_is_absent(&held, is_known ? resident : NULL, page)) continue;
        pages->resident_bytes[c] += page_bytes;
        if (live_bytes[page] && live_bytes[page] < page_bytes / SPARSE_SHARE) pages->sparse_bytes[c] += page_bytes - live_bytes[page];
    }
}

void hak_census_pages(struct hak_census_pages *pages) {
    struct hak_apart apart;
    memset(pages, 0, sizeof *pages);
    hak_apart_look(&apart, true);
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++)
        for (uint64_t slabs = hak_chunk_slabs(number); slabs; slabs &= slabs - 1)
            slab_count_pages(pages, number * HAK_CHUNK_GRANULES + hak_word_first(slabs), &apart);
}
