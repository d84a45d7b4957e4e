/* census.c - counting what the process holds, from the bits.
 *
 * Threads:   any; exact while no other thread allocates, else each number was true a moment ago. Slabs are
 *            read under their claim, so that none ends meanwhile.
 */
#include "heap/letters.h"

#include "heap/hooks.h"

#include <string.h>

static void heap_add(struct hak_heap *heap, void *context) {
    struct hak_census *census = context;
    census->heap_count++;
    census->dead_heap_count += hak_load_relaxed(&heap->state) == HAK_HEAP_DEAD;
    hak_counters_add(&census->counters, &heap->counters);
    for (unsigned index = 1; index < hak_shelf_end(heap); index++) {
        unsigned c = hak_class_plain(index); /* a pool counts as its class */
        uint64_t in_bin = hak_word_count(__atomic_load_n(&hak_bin_of(heap, index)->word, __ATOMIC_RELAXED));
        census->handed[c] += __atomic_load_n(&hak_shelf_of(heap, index)->handed, __ATOMIC_RELAXED) - in_bin;
        census->live[c] -= in_bin;
        if (!hak_class_is_middle(index)) continue;
        const struct hak_middle *middle = hak_middle_of(heap, c);
        census->handed[c] += __atomic_load_n(&middle->handed, __ATOMIC_RELAXED);
        census->live[c] -= hak_middle_count(middle);
    }
    hak_letters_count(heap, census->live);
    for (unsigned i = 0; i < HAK_BATCHES; i++) {
        const struct hak_batch *batch = &heap->batch[i];
        if (batch->mask && batch->slab) census->live[hak_class_plain(batch->slab->class_index)] -= hak_word_count(batch->mask);
    }
}

void hak_census_take(struct hak_census *census) {
    memset(census, 0, sizeof *census);
    hak_heap_each(heap_add, census);
    void (*on_census)(struct hak_census *) = HAK_HOOK(census);
    if (on_census) on_census(census);
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            size_t granule = number * HAK_CHUNK_GRANULES + hak_word_first(live);
            struct hak_slab *slab = hak_slab_at(granule);
            if (!hak_slab_claim(slab)) continue;
            if (hak_slab_live(granule)) {
                const struct hak_class *class = hak_slab_class(slab);
                const struct hak_row *row = hak_slab_row(slab);
                const hak_atomic_u64 *remote = hak_slab_remote(slab);
                unsigned c = hak_class_plain(slab->class_index);
                census->slabs[c]++;
                for (unsigned i = 0; i < class->word_count; i++)
                    census->live[c] += hak_word_count(
                        ~(hak_load_acquire(&remote[i]) | hak_load_acquire(&row->word[i])) & hak_class_valid(class, i));
            }
            hak_slab_unclaim(slab);
        }
    }
}
