/* filled.c - see filled.h. */
#include "slab/filled.h"

#include "memory/large.h"
#include "os/os.h"
#include "slab/slab.h"

#include <string.h>

/* Of 8 parts of a slab; and once so much of what was filled was cut since, 512 KiB at least, it is looked again. */
enum { FILLED_PARTS = 7, GROWN_SHARE = 16, GROWN_LEAST = 8, LOOKS_MS = 60 * 1000 };

hak_atomic_u32 hak_filled;
static hak_atomic_u32 left[HAK_CLASS_COUNT];
static hak_atomic_u32 is_looking;
static hak_atomic_u64 cut_granules; /* since the last look */
static uint64_t start_ms;
static struct {
    hak_atomic_u64 granules;
    hak_atomic_u32 slabs[HAK_CLASS_COUNT];
} most;

HAK_COLD void hak_filled_start(void) {
    start_ms = hak_os_clock_ms();
    hak_or(&hak_filled, HAK_FILLED_LOOKS);
}

HAK_COLD void hak_filled_forget(void) {
    hak_store_relaxed(&is_looking, 0);
    hak_store_relaxed(&cut_granules, 0);
    hak_store_relaxed(&most.granules, 0);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) hak_store_relaxed(&most.slabs[c], 0);
}

/* Words of which not all blocks are free: where new blocks are not opened one page after the other, the others were not used, or not for long. */
static unsigned words_used(const struct hak_slab *slab, const struct hak_class *class) {
    const struct hak_row *row = hak_slab_row(slab);
    unsigned count = 0;
    for (unsigned i = 0; i < class->word_count; i++) {
        uint64_t valid = hak_class_valid(class, i);
        count += (hak_load_relaxed(&row->word[i]) & valid) != valid;
    }
    return count;
}

static bool is_filled(const struct hak_slab *slab, const struct hak_class *class) {
    unsigned pages = hak_word_count(hak_slab_pages(class)), absent = hak_word_count(slab->returned);
    if ((pages - absent) * 8 < pages * FILLED_PARTS) return false;
    uint16_t frontier = slab->frontier;
    if (frontier != UINT16_MAX) return frontier * 8u >= class->capacity * (unsigned)FILLED_PARTS;
    return words_used(slab, class) * 8 >= class->word_count * (unsigned)FILLED_PARTS;
}

static void chunk_look(size_t number, uint32_t slabs[HAK_CLASS_COUNT], uint64_t *granules) {
    for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
        size_t granule = number * HAK_CHUNK_GRANULES + hak_word_first(live);
        struct hak_slab *slab = hak_slab_at(granule);
        if (!hak_slab_claim(slab)) continue;
        if (hak_slab_live(granule) && is_filled(slab, hak_slab_class(slab))) {
            slabs[hak_class_plain(slab->class_index)]++;
            *granules += hak_slab_class(slab)->granules;
        }
        hak_slab_unclaim(slab);
    }
}

HAK_COLD void hak_filled_look(void) {
    uint32_t slabs[HAK_CLASS_COUNT], none = 0;
    uint64_t granules = 0;
    if (!hak_cas(&is_looking, &none, 1)) return;
    memset(slabs, 0, sizeof slabs);
    for (size_t number = 0, top = hak_load_acquire(&hak_chunk_top); number < top; number++) {
        chunk_look(number, slabs, &granules);
        if (hak_unit_ready(number)) slabs[0] += (uint32_t)hak_large_dense(number);
    }
    granules += slabs[0];
    if (granules > hak_load_relaxed(&most.granules)) {
        hak_store_relaxed(&most.granules, granules);
        for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) hak_store_relaxed(&most.slabs[c], slabs[c]);
    }
    hak_store_release(&is_looking, 0);
}

static void grew(uint64_t count) {
    uint64_t share = hak_load_relaxed(&most.granules) / GROWN_SHARE;
    if (hak_add(&cut_granules, count) + count < (share > GROWN_LEAST ? share : GROWN_LEAST)) return;
    hak_store_relaxed(&cut_granules, 0);
    hak_filled_look();
    if (hak_os_clock_ms() - start_ms >= LOOKS_MS) hak_and(&hak_filled, ~(uint32_t)HAK_FILLED_LOOKS);
}

uint32_t hak_filled_slabs(unsigned class_index) { return hak_load_relaxed(&most.slabs[class_index]); }

HAK_COLD void hak_filled_believe(unsigned class_index, uint32_t slabs) {
    hak_store_relaxed(&left[class_index], slabs);
    if (slabs) hak_or(&hak_filled, HAK_FILLED_KNOWS);
}

/* Is the next slab of the class one of those that are known? Counts it. */
static bool is_next(unsigned shelf_index) {
    hak_atomic_u32 *count = &left[hak_class_plain(shelf_index)];
    uint32_t before = hak_load_relaxed(count);
    do {
        if (before == 0) return false;
    } while (!hak_cas_weak(count, &before, before - 1));
    return true;
}

/* How far it is used tells whether it was right: it is opened page by page, though all of it is resident. */
static struct hak_slab *cut_ahead(struct hak_heap *heap, unsigned shelf_index, bool is_watched) {
    struct hak_slab *slab = hak_slab_cut_ahead(heap, shelf_index);
    if (slab && is_watched) slab->whole = 0;
    return slab;
}

HAK_COLD struct hak_slab *hak_filled_cut(struct hak_heap *heap, unsigned shelf_index, enum hak_growth growth) {
    static _Atomic(struct hak_heap *) first;
    uint32_t what = hak_load_relaxed(&hak_filled);
    struct hak_heap *none = NULL;
    size_t count = hak_classes[shelf_index].granules;
    if (growth != HAK_GROWTH_LITTLE && !hak_span_next_is_clean(count)) return NULL; /* it does not grow: others leave memory behind */
    if (what & HAK_FILLED_LOOKS) grew(count);
    if (!(what & HAK_FILLED_KNOWS)) return NULL;
    bool is_first = hak_load_relaxed(&first) == heap || hak_cas(&first, &none, heap);
    if ((!is_first && growth == HAK_GROWTH_LITTLE) || !is_next(shelf_index)) return NULL;
    return cut_ahead(heap, shelf_index, what & HAK_FILLED_LOOKS);
}
