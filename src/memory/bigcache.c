/* bigcache.c - see bigcache.h. */
#include "memory/bigcache.h"

#include "base/word.h"
#include "os/os.h"
#include "rules/options.h"

enum { PROBES = 4, UNKNOWN = 0xffff, DENSE = 960, SPARSE = 512, BACK_MAX = 8, BACK_MIN = 2, NEVER_GIVES = 4, LOOKS_AT_FIRST = 3, LOOK_EVERY = 16 };

static struct hak_big_row {
    hak_atomic_u64 key; /* 0: nobody's */
    const void *_Atomic address;
    hak_atomic_u32 height, takes, gives, given_ms, last;
    _Atomic(uint16_t) touched, any; /* any: the site's row for all sizes */
    _Atomic(uint8_t) octave, back, looks;
} rows[HAK_BIG_ROWS];

static uint64_t key_of(const void *address, uint32_t height, unsigned octave) {
    uint64_t key = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    key ^= ((uint64_t)height << 8 | octave) * UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    return key * UINT64_C(0xd6e8feb86659fd93) | 1;
}

static struct hak_big_row *row_named(hak_big_name name) { return &rows[name - 1]; }

static struct hak_big_row *row_find(uint64_t key) {
    size_t first = key >> 54;
    HAK_STATIC(HAK_BIG_ROWS == 1 << (64 - 54));
    for (unsigned i = 0; i < PROBES; i++)
        if (hak_load_relaxed(&rows[(first + i) % HAK_BIG_ROWS].key) == key) return &rows[(first + i) % HAK_BIG_ROWS];
    return NULL;
}

/* A free row, or that of the probed ones which was asked least, if that was little. */
static struct hak_big_row *row_make(uint64_t key, const void *address, uint32_t height, unsigned octave) {
    size_t first = key >> 54;
    struct hak_big_row *least = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        struct hak_big_row *row = &rows[(first + i) % HAK_BIG_ROWS];
        if (!least || hak_load_relaxed(&row->takes) < hak_load_relaxed(&least->takes)) least = row;
    }
    uint64_t seen = hak_load_relaxed(&least->key);
    uint32_t takes = hak_load_relaxed(&least->takes);
    if (seen && takes > 8) { /* it ages; the new site gets it if it goes on asking */
        hak_store_relaxed(&least->takes, takes - 1);
        return NULL;
    }
    if (!hak_cas(&least->key, &seen, key)) return NULL;
    hak_store_relaxed(&least->address, address);
    hak_store_relaxed(&least->height, height);
    hak_store_relaxed(&least->octave, (uint8_t)octave);
    hak_store_relaxed(&least->takes, 0);
    hak_store_relaxed(&least->gives, 0);
    hak_store_relaxed(&least->touched, UNKNOWN);
    hak_store_relaxed(&least->back, 0);
    hak_store_relaxed(&least->last, 0);
    hak_store_relaxed(&least->any, 0);
    hak_store_relaxed(&least->looks, 0);
    return least;
}

/* What is known of the site at any size stands in a row of its own, under octave 0. */
static struct hak_big_row *row_of(const void *address, uint32_t height, unsigned octave) {
    uint64_t key = key_of(address, height, octave);
    struct hak_big_row *row = row_find(key);
    return HAK_LIKELY(row != NULL) ? row : row_make(key, address, height, octave);
}

hak_big_name hak_big_site(const void *address, uint32_t height, size_t bytes, bool is_counted) {
    if (HAK_OPT(disable_bigcache) | HAK_OPT(minimal)) return 0;
    unsigned octave = hak_word_last(bytes | 1);
    struct hak_big_row *row = row_of(address, height, octave);
    if (!row) return 0;
    if (!is_counted) return (hak_big_name)(row - rows) + 1;
    if (HAK_UNLIKELY(hak_load_relaxed(&row->takes) == 0)) {
        struct hak_big_row *any = row_of(address, height, 0);
        hak_store_relaxed(&row->any, any ? (uint16_t)(any - rows + 1) : 0);
        if (any) hak_store_relaxed(&any->takes, hak_load_relaxed(&any->takes) + 1);
    }
    hak_store_relaxed(&row->takes, hak_load_relaxed(&row->takes) + 1);
    if (hak_load_relaxed(&row->gives)) {
        bool soon = (uint32_t)hak_os_clock_ms() - hak_load_relaxed(&row->given_ms) < HAK_OPT(large_linger_ms);
        unsigned back = hak_load_relaxed(&row->back);
        if (soon && back < BACK_MAX) hak_store_relaxed(&row->back, (uint8_t)(back + 1));
        if (!soon && back > 0) hak_store_relaxed(&row->back, (uint8_t)(back / 2));
    }
    return (hak_big_name)(row - rows) + 1;
}

bool hak_big_given(hak_big_name name) {
    struct hak_big_row *row = row_named(name);
    hak_store_relaxed(&row->gives, hak_load_relaxed(&row->gives) + 1);
    hak_store_relaxed(&row->given_ms, (uint32_t)hak_os_clock_ms());
    unsigned touched = hak_load_relaxed(&row->touched);
    return hak_load_relaxed(&row->looks) < LOOKS_AT_FIRST || (touched != UNKNOWN && touched >= DENSE) ||
           hak_load_relaxed(&row->takes) % LOOK_EVERY == 0;
}

static struct hak_big_row *any_of(struct hak_big_row *row) {
    hak_big_name any = hak_load_relaxed(&row->any);
    return any ? row_named(any) : row;
}

size_t hak_big_last(hak_big_name name, size_t fresh_granule) {
    struct hak_big_row *row = any_of(row_named(name));
    if (hak_load_relaxed(&row->looks) >= LOOKS_AT_FIRST) return 0;
    uint32_t last = hak_load_relaxed(&row->last);
    hak_store_relaxed(&row->last, (uint32_t)fresh_granule);
    return last;
}

static void looked_at(struct hak_big_row *row, unsigned touched) {
    unsigned before = hak_load_relaxed(&row->touched), looks = hak_load_relaxed(&row->looks);
    if (before != UNKNOWN && touched > before) touched = (3 * before + touched) / 4; /* it falls at once */
    hak_store_relaxed(&row->touched, (uint16_t)touched);
    if (looks < LOOKS_AT_FIRST) hak_store_relaxed(&row->looks, (uint8_t)(looks + 1));
}

void hak_big_looked(hak_big_name name, unsigned touched) {
    struct hak_big_row *row = row_named(name), *any = any_of(row);
    looked_at(row, touched);
    if (any != row) looked_at(any, touched);
}

bool hak_big_is_dense(hak_big_name name, bool *is_looked_at) {
    if (!name) return false;
    struct hak_big_row *row = row_named(name);
    unsigned touched = hak_load_relaxed(&row->touched);
    if (touched == UNKNOWN) touched = hak_load_relaxed(&any_of(row)->touched); /* a size of which nothing is known yet */
    *is_looked_at = hak_load_relaxed(&row->takes) % LOOK_EVERY == 0;
    return touched != UNKNOWN && touched >= DENSE;
}

bool hak_big_is_sparse(hak_big_name name) {
    if (!name) return false;
    unsigned touched = hak_load_relaxed(&row_named(name)->touched);
    if (touched == UNKNOWN) touched = hak_load_relaxed(&any_of(row_named(name))->touched);
    return touched < SPARSE;
}

bool hak_big_comes_back(hak_big_name name) { return name && hak_load_relaxed(&row_named(name)->back) >= BACK_MIN; }

bool hak_big_never_comes_back(hak_big_name name) {
    return name && hak_load_relaxed(&row_named(name)->back) == 0 && hak_load_relaxed(&row_named(name)->gives) >= NEVER_GIVES;
}

void hak_big_each(void (*function)(const struct hak_big_known *known, void *context), void *context) {
    for (unsigned i = 0; i < HAK_BIG_ROWS; i++) {
        struct hak_big_row *row = &rows[i];
        if (!hak_load_acquire(&row->key) || !hak_load_relaxed(&row->octave)) continue;
        struct hak_big_known known = { hak_load_relaxed(&row->address), hak_load_relaxed(&row->height),
                                       hak_load_relaxed(&row->octave), hak_load_relaxed(&row->back), 0 };
        unsigned touched = hak_load_relaxed(&row->touched);
        if (touched != UNKNOWN) known.touched = touched;
        if (known.back >= BACK_MIN || known.touched >= DENSE) function(&known, context);
    }
}

void hak_big_learnt(const struct hak_big_known *known) {
    uint64_t key = key_of(known->address, known->height, known->octave);
    struct hak_big_row *row = row_find(key);
    if (!row) row = row_make(key, known->address, known->height, known->octave);
    if (!row) return;
    hak_store_relaxed(&row->back, (uint8_t)(known->back < BACK_MAX ? known->back : BACK_MAX));
    if (known->touched) hak_store_relaxed(&row->touched, (uint16_t)known->touched);
}
