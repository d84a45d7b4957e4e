/* slab_room.h - slabs without a heap, for tests of the slab layer: cut, taken from, given to and ended by hand. */
#ifndef HAK_TEST_SLAB_ROOM_H
#define HAK_TEST_SLAB_ROOM_H

#include "unit/room.h"

#include "base/word.h"
#include "heap/heap.h"
#include "memory/purge.h"
#include "rules/options.h"
#include "slab/slab.h"

static struct hak_heap heap; /* nothing of it is used but its address */
static jmp_buf caught;
static const void *misused;

__attribute__((noreturn)) static inline void misuse(const char *function, const void *block) {
    assert_string_equal(function, "free");
    misused = block;
    longjmp(caught, 1);
}

static inline int slab_room_start(void **state) {
    (void)state;
    room_region_start();
    hak_slab_misuse = misuse;
    hak_purge_on_empty_chunk = hak_slab_chunk_empty; /* as front/start.c does */
    return 0;
}

static uint64_t opened; /* bytes, as a heap counts them */

static inline struct hak_slab *slab_cut(unsigned c) {
    struct hak_slab *slab = hak_slab_cut(&heap, c, HAK_GROWTH_SOME);
    assert_non_null(slab);
    return slab;
}

/* As a visit takes: the plain way where that will do. */
static inline uint64_t slab_next(struct hak_slab *slab, unsigned *index, uint32_t *count) {
    struct hak_row *row = hak_slab_row(slab);
    hak_slab_turn_claimed(slab, row);
    uint64_t word = hak_slab_take_plain_claimed(slab, row, opened, count);
    if (!word) word = hak_slab_take_claimed(slab, row, count, NULL, &opened);
    *index = slab->cursor;
    return word;
}

/* Takes all its blocks; gives how many. */
static inline unsigned slab_drain(struct hak_slab *slab) {
    unsigned index, taken = 0;
    uint32_t count;
    assert_true(hak_slab_claim(slab));
    while (slab_next(slab, &index, &count)) taken += count;
    hak_slab_unclaim(slab);
    return taken;
}

static inline unsigned free_count(const struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    unsigned count = 0;
    for (unsigned i = 0; i < class->capacity; i++) count += hak_load_relaxed(&hak_slab_row(slab)->word[i / 64]) >> i % 64 & 1;
    return count;
}

/* As its owner frees: the bit, and the count. */
static inline void block_give(struct hak_slab *slab, unsigned block) {
    struct hak_row *row = hak_slab_row(slab);
    hak_or(&row->word[block / 64], UINT64_C(1) << block % 64);
    hak_row_arm(row, hak_row_out(row) - 1, 1);
}

static inline void slab_end(struct hak_slab *slab) {
    struct hak_row *row = hak_slab_row(slab);
    for (unsigned i = 0; i < hak_slab_class(slab)->word_count; i++) hak_or(&row->word[i], hak_class_valid(hak_slab_class(slab), i));
    hak_row_arm(row, 0, 0);
    assert_true(hak_slab_claim(slab));
    hak_slab_release_claimed(slab, NULL);
}

static inline uint32_t slab_take(struct hak_slab *slab) {
    unsigned index;
    uint32_t count = 0;
    assert_true(hak_slab_claim(slab));
    slab_next(slab, &index, &count);
    hak_slab_unclaim(slab);
    return count;
}

#endif
