/* tray.c - see tray.h.
 *
 * Invariant: a tray's word is { generation 24 | class 8 | free blocks 32 }; class 0: its first cell begins no tray. Who
 *            turns a word of all free blocks into class 0 owns the tray's cells; who clears the last cell of a granule
 *            and turns 0 into CELLS_NONE owns the granule.
 * Order:     `first` of the cells is written before the word (release), and read after it.
 * Rejected:  slabs of a heap that is no thread's: 64 KiB and more for each class that has one live sample, and its mail
 *            would be seen by whoever comes by, long after the free.
 */
#include "watch/tray.h"

#include "base/word.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "heap/walk.h"

enum { CELL_SHIFT = 10, CELLS = 64, BLOCKS_MAX = 32, GRANULES_MAX = 8192, HINTS = 8, TRAY_BYTES = 4096, KINDS = 3 };
#define CELLS_NONE (~UINT64_C(0)) /* of a granule that is nobody's: no room in it */
#define MAGIC UINT64_C(0x7472617967726e31)

struct granule {
    char row[sizeof(struct hak_row)]; /* what the slow free reads in front of `words`: its slab is `nobody` */
    hak_atomic_u64 words;             /* the record points here */
    uint64_t magic;
    uint32_t index;
    _Atomic(char *) start;
    hak_atomic_u64 cells;             /* used */
    hak_atomic_u32 kind, next;        /* where a search begins: what was freed last is not handed out at once */
    hak_atomic_u64 tray[CELLS];       /* of the cell at which a tray begins */
    _Atomic(uint8_t) first[CELLS];    /* at which the tray of this cell begins, or began last */
    _Atomic(uint8_t) last_class[CELLS];
    hak_atomic_u32 number[CELLS][BLOCKS_MAX];
};

static _Atomic(struct granule *) granules[GRANULES_MAX];
static hak_atomic_u32 granule_count;             /* descriptors there are */
static hak_atomic_u32 hints[HAK_CLASS_COUNT][HINTS]; /* trays that may have room: granule * 64 + cell + 1 */
static hak_atomic_u32 room[KINDS];               /* where a search for cells begins */
static hak_atomic_u64 handed_count[HAK_CLASS_COUNT];
static struct hak_slab nobody;

/* --- the shape of a class's tray --- */

static size_t block_bytes(unsigned class_index) { return hak_classes[class_index].block_bytes; }
static unsigned block_count(unsigned class_index) {
    size_t fit = TRAY_BYTES / block_bytes(class_index);
    return fit > BLOCKS_MAX ? BLOCKS_MAX : fit ? (unsigned)fit : 1;
}
static unsigned cell_count(unsigned class_index) {
    return (unsigned)((block_bytes(class_index) * block_count(class_index) + (1 << CELL_SHIFT) - 1) >> CELL_SHIFT);
}
/* A block is aligned to the largest power of two that divides its size, as in a slab (front/aligned.c). */
static unsigned cell_step(unsigned class_index) {
    size_t bytes = block_bytes(class_index), power = bytes & -bytes;
    return power >> CELL_SHIFT ? (unsigned)(power >> CELL_SHIFT) : 1;
}
static uint32_t all_free(unsigned class_index) { return (uint32_t)hak_word_mask(0, block_count(class_index)); }
/* Small ones do not hold the granules of large ones. */
static unsigned kind_of(unsigned class_index) {
    size_t bytes = block_bytes(class_index);
    return bytes <= 512 ? 0 : bytes <= 4096 ? 1 : 2;
}

static uint64_t word_make(uint64_t before, unsigned class_index, uint32_t free_blocks) {
    return ((before >> 40) + 1) << 40 | (uint64_t)class_index << 32 | free_blocks;
}
static unsigned word_class(uint64_t word) { return (unsigned)(word >> 32 & 0xff); }

static struct granule *granule_at(uint32_t index) { return hak_load_acquire(&granules[index]); }

/* --- granules --- */

static void records_write(struct granule *granule, char *start) {
    struct hak_granule *record = hak_granule_at(hak_granule_of(start));
    record->words = &granule->words;
    record->start = start;
    record->reciprocal = 0;
    hak_store_release(&record->owner, HAK_WATCHED);
}

/* The number is taken first, so that nobody makes one in vain; until it is there others find NULL. */
static struct granule *descriptor_new(void) {
    uint32_t index = hak_load_relaxed(&granule_count);
    struct granule *made = index < GRANULES_MAX ? hak_os_map(hak_round_up(sizeof(struct granule), hak_os_page_bytes())) : NULL;
    if (!made) return NULL;
    do
        if (index >= GRANULES_MAX) return NULL;
    while (!hak_cas_weak(&granule_count, &index, index + 1));
    ((struct hak_row *)(void *)made->row)->slab = &nobody;
    made->magic = MAGIC;
    made->index = index;
    hak_store_relaxed(&made->cells, CELLS_NONE);
    hak_store_release(&granules[index], made);
    return made;
}

/* Gives a descriptor that has no granule one, its first cells being the caller's. */
static bool granule_fill(struct granule *granule, unsigned kind, uint64_t cells) {
    char *nothing = NULL, *busy = (char *)granule;
    if (!hak_cas(&granule->start, &nothing, busy)) return false;
    size_t dirty, number = hak_span_take(1, 1, &dirty);
    if (number == HAK_NO_GRANULE) {
        hak_store_release(&granule->start, NULL);
        return false;
    }
    char *start = hak_granule_address(number);
    hak_store_relaxed(&granule->kind, kind);
    hak_store_release(&granule->start, start);
    records_write(granule, start);
    hak_store_release(&granule->cells, cells); /* from here on others find room in it */
    return true;
}

/* `cells` are the caller's; if they were the last, the granule goes back. */
static void cells_give(struct granule *granule, uint64_t cells) {
    uint64_t none = 0;
    if ((hak_and(&granule->cells, ~cells) & ~cells) != 0 || !hak_cas(&granule->cells, &none, CELLS_NONE)) return;
    char *start = hak_load_relaxed(&granule->start);
    size_t number = hak_granule_of(start);
    hak_store_release(&hak_granule_at(number)->owner, NULL);
    hak_span_give(number, 1, HAK_SPAN_DIRTY);
    hak_store_release(&granule->start, NULL);
}

static int cells_find(uint64_t used, unsigned count, unsigned step, unsigned from) {
    uint64_t runs = hak_word_runs(~used, count) & hak_word_multiples(step), behind = runs & ~hak_word_mask(0, from);
    return runs ? (int)hak_word_first(behind ? behind : runs) : -1;
}

/* Takes cells for a tray, in *granule; the first, or -1. */
static int cells_take(unsigned class_index, uint32_t *index) {
    enum { LOOKS = 64 };
    unsigned count = cell_count(class_index), step = cell_step(class_index), kind = kind_of(class_index);
    uint32_t there = hak_load_acquire(&granule_count), begin = hak_load_relaxed(&room[kind]);
    for (uint32_t i = 0; i < there && i < LOOKS; i++) {
        struct granule *granule = granule_at(*index = (begin + i) % there);
        if (!granule) continue;
        uint64_t used = hak_load_acquire(&granule->cells);
        while (used != CELLS_NONE && hak_load_relaxed(&granule->kind) == kind) {
            int first = cells_find(used, count, step, hak_load_relaxed(&granule->next));
            if (first < 0) break;
            if (!hak_cas(&granule->cells, &used, used | hak_word_mask((unsigned)first, count))) continue;
            hak_store_relaxed(&granule->next, ((uint32_t)first + count) % CELLS);
            hak_store_relaxed(&room[kind], *index);
            return first;
        }
    }
    for (uint32_t i = 0; i < there; i++) { /* a descriptor whose granule went back */
        struct granule *granule = granule_at(i);
        if (!granule || hak_load_relaxed(&granule->start) != NULL) continue;
        unsigned first = (unsigned)cells_find(0, count, step, hak_load_relaxed(&granule->next));
        if (!granule_fill(granule, kind, hak_word_mask(first, count))) continue;
        hak_store_relaxed(&granule->next, (first + count) % CELLS);
        hak_store_relaxed(&room[kind], *index = i);
        return (int)first;
    }
    struct granule *granule = descriptor_new();
    if (!granule || !granule_fill(granule, kind, hak_word_mask(0, count))) return -1;
    hak_store_relaxed(&granule->next, count % CELLS);
    hak_store_relaxed(&room[kind], *index = granule->index);
    return 0;
}

/* --- trays --- */

static void hint_set(unsigned class_index, uint32_t granule, unsigned cell) {
    hak_store_relaxed(&hints[class_index][(granule + cell) % HINTS], granule * CELLS + cell + 1);
}

static void *block_at(struct granule *granule, unsigned cell, unsigned class_index, unsigned i, hak_atomic_u32 **number) {
    *number = &granule->number[cell][i];
    hak_store_relaxed(*number, 0);
    hak_add(&handed_count[class_index], 1);
    return hak_load_relaxed(&granule->start) + ((size_t)cell << CELL_SHIFT) + i * block_bytes(class_index);
}

static void *take_hinted(unsigned class_index, uint32_t hint, hak_atomic_u32 **number) {
    unsigned cell = (hint - 1) % CELLS;
    struct granule *granule = granule_at((hint - 1) / CELLS);
    uint64_t word = hak_load_acquire(&granule->tray[cell]);
    while (word_class(word) == class_index && (uint32_t)word != 0) {
        unsigned i = hak_word_first((uint32_t)word);
        if (hak_cas(&granule->tray[cell], &word, word & ~(UINT64_C(1) << i)))
            return block_at(granule, cell, class_index, i, number);
    }
    return NULL;
}

void *hak_tray_take(unsigned class_index, hak_atomic_u32 **number) {
    for (unsigned i = 0; i < HINTS; i++) {
        uint32_t hint = hak_load_relaxed(&hints[class_index][i]);
        if (!hint) continue;
        void *block = take_hinted(class_index, hint, number);
        if (block) return block;
        hak_store_relaxed(&hints[class_index][i], 0);
    }
    uint32_t index = 0;
    int first = cells_take(class_index, &index);
    if (first < 0) return NULL;
    struct granule *granule = granule_at(index);
    unsigned cell = (unsigned)first, count = cell_count(class_index);
    for (unsigned i = 0; i < count; i++) hak_store_relaxed(&granule->first[cell + i], (uint8_t)cell);
    hak_store_relaxed(&granule->last_class[cell], (uint8_t)class_index);
    uint64_t before = hak_load_relaxed(&granule->tray[cell]);
    void *block = block_at(granule, cell, class_index, 0, number);
    hak_store_release(&granule->tray[cell], word_make(before, class_index, all_free(class_index) & ~1u));
    if (block_count(class_index) > 1) hint_set(class_index, index, cell);
    return block;
}

/* --- finding and freeing --- */

static struct granule *granule_of(const void *address) {
    if (!hak_region_holds(address)) return NULL;
    size_t number = hak_granule_of(address);
    if (!hak_unit_ready(number / HAK_CHUNK_GRANULES)) return NULL;
    const struct hak_granule *record = hak_granule_at(number);
    struct hak_heap *owner = hak_load_acquire(&record->owner);
    hak_atomic_u64 *words = __atomic_load_n(&record->words, __ATOMIC_ACQUIRE);
    if ((owner != HAK_WATCHED && owner != NULL) || record->reciprocal != 0 || !words) return NULL;
    /* another thread may have ended it meanwhile, and a large block's words are no address */
    if (owner == HAK_WATCHED && hak_load_acquire(&record->owner) != HAK_WATCHED) return NULL;
    struct granule *granule = (struct granule *)(void *)((char *)words - offsetof(struct granule, words));
    return granule->magic == MAGIC ? granule : NULL;
}

bool hak_tray_find(const void *address, struct hak_tray_place *place) {
    struct granule *granule = granule_of(address);
    if (!granule) return false;
    char *start = hak_granule_at(hak_granule_of(address))->start;
    size_t offset = (size_t)((const char *)address - start);
    if (offset >> CELL_SHIFT >= CELLS) return false; /* of another by now */
    unsigned cell = hak_load_acquire(&granule->first[offset >> CELL_SHIFT]);
    uint64_t word = hak_load_acquire(&granule->tray[cell]);
    unsigned class_index = word_class(word) ? word_class(word) : hak_load_relaxed(&granule->last_class[cell]);
    if (!class_index || class_index >= HAK_CLASS_COUNT || cell >= CELLS || offset < (size_t)cell << CELL_SHIFT) return false;
    unsigned i = (unsigned)((offset - ((size_t)cell << CELL_SHIFT)) / block_bytes(class_index));
    if (i >= block_count(class_index)) return false;
    place->class_index = class_index;
    place->bytes = block_bytes(class_index);
    place->start = start + ((size_t)cell << CELL_SHIFT) + i * place->bytes;
    place->is_free = !word_class(word) || word >> i & 1 || hak_load_relaxed(&granule->start) != start;
    place->number = &granule->number[cell][i];
    return true;
}

bool hak_tray_give(void *block) {
    struct hak_tray_place place;
    if (!hak_tray_find(block, &place) || place.start != block || place.is_free) return false;
    struct granule *granule = granule_of(block);
    unsigned cell = hak_load_relaxed(&granule->first[(size_t)((char *)block - hak_load_relaxed(&granule->start)) >> CELL_SHIFT]);
    unsigned i = (unsigned)(place.number - granule->number[cell]), class_index = place.class_index;
    uint64_t word = hak_load_relaxed(&granule->tray[cell]), bit = UINT64_C(1) << i, freed;
    do {
        if (word & bit) return false;
        freed = word | bit;
    } while (!hak_cas_weak(&granule->tray[cell], &word, freed));
    if ((uint32_t)freed != all_free(class_index)) {
        hint_set(class_index, granule->index, cell);
        return true;
    }
    if (!hak_cas(&granule->tray[cell], &freed, word_make(freed, 0, 0))) return true;
    cells_give(granule, hak_word_mask(cell, cell_count(class_index)));
    return true;
}

void hak_tray_census(uint64_t *live, uint64_t *handed) {
    uint32_t there = hak_load_acquire(&granule_count);
    for (uint32_t g = 0; g < there; g++)
        for (unsigned cell = 0; granule_at(g) && cell < CELLS; cell++) {
            uint64_t word = hak_load_relaxed(&granule_at(g)->tray[cell]);
            unsigned class_index = word_class(word);
            if (class_index) live[class_index] += block_count(class_index) - hak_word_count((uint32_t)word);
        }
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) handed[c] += hak_load_relaxed(&handed_count[c]);
}

/* The tray may end, and its granule lie elsewhere, between two looks: then its word is of another generation. */
static int cell_walk(const struct hak_walk *walk, struct granule *granule, unsigned cell) {
    uint64_t word = hak_load_acquire(&granule->tray[cell]);
    char *start = hak_load_acquire(&granule->start);
    unsigned class_index = word_class(word);
    int result = 0;
    if (!class_index || hak_load_acquire(&granule->tray[cell]) >> 32 != word >> 32) return 0;
    size_t bytes = block_bytes(class_index);
    for (uint32_t live = ~(uint32_t)word & all_free(class_index); live && !result; live &= live - 1)
        result = hak_walk_show(walk, start + ((size_t)cell << CELL_SHIFT) + hak_word_first(live) * bytes, bytes, false, false);
    return result;
}
int hak_tray_walk(const struct hak_walk *walk) {
    int result = 0;
    for (uint32_t g = 0; g < hak_load_acquire(&granule_count) && !result; g++)
        for (unsigned cell = 0; granule_at(g) && cell < CELLS && !result; cell++) result = cell_walk(walk, granule_at(g), cell);
    return result;
}
