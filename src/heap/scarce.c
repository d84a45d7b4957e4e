/* scarce.c - see scarce.h. */
#include "heap/scarce.h"

/* So many visits, and fewer than three blocks each on the average of all meanwhile: it stays like that, and is no moment of growth. */
enum { VISITS = 64, MEAN = 3 };
/* A word that has so many is worth turning to. */
enum { MANY = 32 };

/* The lowest word of those that are open whole that has many blocks; else the one in which the next page is. */
static unsigned word_with_many(const struct hak_row *row, unsigned open) {
    unsigned i = 0;
    while (i < open / 64 && hak_word_count(hak_load_relaxed(&row->word[i])) < MANY) i++;
    return i;
}

/* It comes back when a share of it is free, as if it were full. What the bin has goes back first: it is of the slab in use. */
static void leave(struct hak_heap *heap, struct hak_row *row, uint32_t share) {
    const struct hak_class *class = hak_slab_class(row->slab);
    hak_bin_trim(heap, row->class_index, 0);
    uint32_t out = hak_row_out(row), left = class->capacity - out;
    if (left >= share) return;
    hak_shelf_of(heap, row->class_index)->current = NULL;
    row->slab->place = HAK_SLAB_FULL;
    hak_row_arm(row, out, share - left);
}

static void turn(struct hak_heap *heap, struct hak_row *row) {
    bool is_counted = hak_load_relaxed(&heap->is_instance) != 0; /* by slabs: no more of those than are needed */
    const struct hak_class *class = hak_slab_class(row->slab);
    unsigned open = row->slab->frontier < class->capacity ? row->slab->frontier : class->capacity, i = word_with_many(row, open);
    uint32_t share = hak_relist_blocks(class);
    if (i < open / 64 || open < class->capacity) hak_store_relaxed(&row->slab->cursor, (uint8_t)i);
    else if (!is_counted && class->capacity - hak_row_out(row) < share) leave(heap, row, share);
}

HAK_STATIC((int)VISITS + (int)HAK_SCARCE_SAMPLED <= UINT8_MAX);

HAK_COLD void *hak_scarce_note(struct hak_heap *heap, struct hak_row *row, void *block, unsigned visits) {
    unsigned index = row->class_index;
    if (index > HAK_SMALL_CLASS_MAX || heap->shelf[index].current != row) return block;
    uint32_t handed = (uint32_t)heap->shelf[index].handed;
    if (heap->scarce[index] == 0) heap->scarce_from[index] = handed;
    heap->scarce[index] = (uint8_t)(heap->scarce[index] + visits);
    if (heap->scarce[index] < VISITS) return block;
    heap->scarce[index] = 0;
    if (handed - heap->scarce_from[index] < VISITS * MEAN) turn(heap, row);
    return block;
}
