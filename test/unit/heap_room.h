/* heap_room.h - malloc and free for tests of the heap layer, without the front: heaps as arguments, classes as sizes. */
#ifndef HAK_TEST_HEAP_ROOM_H
#define HAK_TEST_HEAP_ROOM_H

#include "unit/audit.h"
#include "unit/room.h"

#include "base/word.h"
#include "heap/heap.h"
#include "memory/purge.h"

static jmp_buf room_caught;
static const void *volatile room_misused;

__attribute__((noreturn)) static inline void room_misuse(const char *function, const void *block) {
    (void)function;
    room_misused = block;
    longjmp(room_caught, 1);
}

static inline void *room_shortage(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    (void)bytes;
    (void)heap;
    (void)class_index;
    return NULL;
}

static inline int heap_room_start(void **state) {
    (void)state;
    room_region_start();
    hak_slab_misuse = room_misuse;
    hak_heap_on_shortage = room_shortage;
    hak_purge_on_empty_chunk = hak_slab_chunk_empty;
    return 0;
}

/* Who visits seldom while memory is free has little at hand (heap/chores.c). Where visits are counted no machine is to be so slow. */
static bool room_time_stands;

/* As malloc of a size of the class. */
static inline void *block_take(struct hak_heap *heap, unsigned c) {
    struct hak_bin *bin = hak_bin_at(heap, c);
    if (room_time_stands) heap->ticks_seen = hak_os_ticks();
    if (!bin->word) return hak_visit(hak_classes[c].block_bytes, heap, c);
    unsigned index = hak_word_first(bin->word);
    bin->word &= bin->word - 1;
    return bin->base + index * (size_t)hak_classes[c].block_bytes;
}

static inline struct hak_slab *slab_of(const void *block) { return hak_slab_of(hak_granule_at(hak_granule_of(block))); }

static inline unsigned block_index(const void *block) {
    struct hak_slab *slab = slab_of(block);
    return (unsigned)((size_t)((const char *)block - hak_slab_start(slab)) / hak_slab_class(slab)->block_bytes);
}

/* As free by the thread of this heap. */
static inline void block_give(struct hak_heap *heap, void *block) {
    struct hak_slab *slab = slab_of(block);
    unsigned index = block_index(block);
    if (atomic_load(&slab->owner) != heap) {
        hak_stranger_free(heap, atomic_load(&slab->owner), hak_granule_at(hak_granule_of(block)), block, index);
        return;
    }
    if (slab->class_index > HAK_SMALL_CLASS_MAX) {
        hak_middle_free(block, hak_granule_at(hak_granule_of(block)), heap, "free", slab_of(block)->class_index);
        hak_middle_flush(heap); /* what is kept is test/unit/middle.c's */
        return;
    }
    struct hak_row *row = hak_slab_row(slab);
    hak_store_release(&row->word[index / 64], hak_load_relaxed(&row->word[index / 64]) | UINT64_C(1) << index % 64);
    if (--row->countdown == 0) hak_event(heap, slab);
}

/* The class has a slab of its own at once. */
static inline void class_is_common(struct hak_heap *heap, unsigned c) { heap->shelf[c].rare = HAK_RARE_GREW; }

/* Another heap, as of another thread; the calling thread's own stays what it was. */
static inline struct hak_heap *heap_make(void) {
    struct hak_heap *mine = hak_self, *heap = hak_heap_birth(hak_self);
    assert_non_null(heap);
    hak_self = mine;
    heap->hurried = 0; /* it may have been another test's, which freed much */
    hak_store_relaxed(&heap->takes_letters, 0); /* test/unit/letters.c has them */
    return heap;
}

static inline void heap_end(struct hak_heap *heap) {
    struct hak_heap *mine = hak_self;
    hak_heap_death(heap);
    hak_self = mine;
}

static inline uint64_t live_blocks(unsigned c) {
    struct hak_census census;
    hak_census_take(&census);
    return census.live[c];
}
static inline uint64_t live_slabs(unsigned c) {
    struct hak_census census;
    hak_census_take(&census);
    return census.slabs[c];
}

static inline unsigned in_letters(const struct hak_heap *heap) {
    unsigned count = 0;
    for (unsigned line = 0; line < HAK_LETTER_LINES; line++)
        for (unsigned i = 0; i < HAK_LETTER_BLOCKS; i++) count += hak_load_relaxed(&heap->letter[line].block[i]) != NULL;
    return count;
}

/* hak_purge.free_bytes, and what heaps have not added to it yet. */
static inline void free_sum_add(struct hak_heap *heap, void *sum) { *(int64_t *)sum += heap->free_sum + heap->middle_from - heap->middle_in; }
static inline int64_t free_now(void) {
    int64_t sum = hak_load_relaxed(&hak_purge.free_bytes);
    hak_heap_each(free_sum_add, &sum);
    return sum;
}

#define AUDIT()                                                   \
    do {                                                          \
        struct audit audit_;                                      \
        const char *wrong_ = audit_find(&audit_, 0);              \
        if (wrong_) fail_msg("the sums disagree: %s", wrong_);    \
    } while (0)

#endif
