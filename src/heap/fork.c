/* fork.c - the first steps of a child.
 *
 * The child sees a prefix of every other thread's stores. Bits are the truth; lists, countdowns, mailboxes and
 * the list of dead heaps are caches. A page that the kernel wipes in children (also after raw clone and _Fork)
 * says that this is one, on the first slow path or in fork's own handler: the epoch moves on, by which every claim, mailbox, `mailed` and
 * the list of dead heaps are void. The heap in the surviving thread's hak_self is whole, since that thread was
 * not in the middle of a visit. All other heaps of the older epoch stay untouched until the survivor rebuilds
 * them from the bits, before it first asks for a new slab.
 *
 * Threads:   the survivor alone rebuilds: it is the only one whose heap is of an older epoch, or, where the forking thread had
 *            none, the first that gets one. New threads of the child get new heaps meanwhile.
 * Rejected:  atfork handlers that take locks: they deadlock with stdio's (glibc's tst-malloc-fork-deadlock). No handler, where
 *            the kernel wipes the page: the epoch then moves while a new thread is in the middle of a free (docs/experiments.md).
 */
#include "heap/family.h"
#include "heap/kept.h"
#include "heap/letters.h"
#include "memory/purge.h"
#include "os/os.h"

/* What the surviving thread has of families is as whole as its own heap. */
static bool instance_follows(struct hak_heap *heap, void *home) {
    if (hak_load_relaxed(&heap->home) != home) return false;
    heap->mail_rest = NULL;
    hak_store_release(&heap->epoch, hak_load_relaxed(&hak_epoch));
    return false;
}

static HAK_COLD void instances_follow(struct hak_heap *home) { hak_family_each_of_home(home, instance_follows, home); }

/* Of an instance that a thread has, the thread's own heap is the survivor. */
static HAK_COLD struct hak_heap *instance_home(struct hak_heap *heap) {
    struct hak_heap *home = hak_load_relaxed(&heap->home);
    return home ? home : (struct hak_heap *)&hak_heap_none;
}

void hak_fork_child(struct hak_heap *heap) {
    uint32_t page = hak_load_acquire(hak_region.fork_page), before = hak_load_relaxed(&hak_epoch);
    if (page == 0) {
        hak_os_forked(); /* first: nobody is to find neither */
        uint32_t next = hak_load_relaxed(&hak_epoch) + 1;
        hak_cas(hak_region.fork_page, &page, next ? next : 1);
        page = hak_load_acquire(hak_region.fork_page);
    }
    hak_store_release(&hak_epoch, page); /* whoever is first: the same number */
    if (before != page) hak_heap_new_process();
    if (hak_heap_is_none(heap) || hak_load_relaxed(&heap->epoch) == page) return;
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) {
        hak_fork_child(instance_home(heap));
        return;
    }
    hak_heap_unstamp(heap); /* the thread has another number here */
    heap->mail_rest = NULL;
    /* who wrote one may have vanished before he said so; a heap that never had any is not looked through, a page fault in each child */
    if (heap->had_letters) hak_store_relaxed(&heap->letters, UINT32_MAX);
    hak_store_release(&heap->epoch, page);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->has_instances))) instances_follow(heap);
    heap->is_survivor = 1;
}

/* The epoch in which nobody is to rebuild, the forking thread having no heap: who gets the first one here is. Only fork's own
 * handler knows that, where there is one thread; later another new thread may be mistaken for the forking one. */
static hak_atomic_u32 heirless;

void hak_fork_without_heap(void) { hak_store_release(&heirless, hak_load_relaxed(&hak_epoch)); }

void hak_fork_born(struct hak_heap *heap) {
    uint32_t seen = hak_load_relaxed(&heirless);
    if (HAK_LIKELY(seen == 0 || seen != hak_load_relaxed(&hak_epoch))) return;
    if (hak_cas(&heirless, &seen, 0)) heap->is_survivor = 1;
}

static HAK_COLD void heap_blank(struct hak_heap *heap, void *survivor) {
    if (heap == survivor || hak_load_relaxed(&heap->epoch) == hak_load_relaxed(&hak_epoch)) return;
    hak_store_relaxed(&heap->state, HAK_HEAP_BUSY);
    hak_heap_unstamp(heap);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) {
        hak_store_relaxed(&heap->home, NULL);
        hak_store_relaxed(&heap->slab_count, 0); /* counted anew below */
    }
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->has_instances))) hak_store_relaxed(&heap->has_instances, 0);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->flying) != NULL)) hak_store_relaxed(&heap->flying, NULL); /* what is in no row is nobody's free */
    for (unsigned c = 1; c < hak_shelf_end(heap); c++) {
        struct hak_bin *bin = hak_bin_of(heap, c);
        struct hak_shelf *shelf = hak_shelf_of(heap, c);
        if (bin->word) { /* its blocks are clear in the row */
            struct hak_row *row = hak_row_of(hak_granule_at(hak_granule_of(bin->base))->words);
            size_t block = (size_t)(bin->base - row->start) / row->block_bytes;
            hak_store_release(&row->word[block / 64], hak_load_relaxed(&row->word[block / 64]) | bin->word);
            hak_owner_add(&shelf->handed, -(uint64_t)hak_word_count(bin->word));
            hak_owner_add(&shelf->ahead, -(uint64_t)hak_word_count(bin->word));
            bin->word = 0;
        }
        if (shelf->current) shelf->current = NULL; /* looked at first: a page that nothing is to be written to is still the parent's */
        if (shelf->partial) shelf->partial = 0;
    }
    __atomic_store_n(&heap->pending, 0, __ATOMIC_RELAXED);
    heap->mail_rest = NULL;
    for (unsigned i = 0; i < HAK_MIDDLE_CLASSES; i++) { /* clear in the row */
        struct hak_middle *middle = &heap->middle[i];
        for (unsigned count = hak_middle_count(middle); count > 0; middle->state = (uint16_t)--count) {
            char *block = hak_middle_block(middle, count - 1);
            struct hak_row *row = hak_row_of(hak_granule_at(hak_granule_of(block))->words);
            size_t index = (size_t)(block - row->start) / row->block_bytes;
            hak_store_release(&row->word[index / 64], hak_load_relaxed(&row->word[index / 64]) | UINT64_C(1) << index % 64);
            hak_free_note_in(&heap->free_sum, -(int64_t)middle->block_bytes);
        }
        if (middle->numbers) middle->numbers = 0; /* one that was being handed out, too */
    }
}

/* A slab of a vanished thread's heap: everything but its bits is made anew. */
static void slab_rebuild(struct hak_heap *heap, struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    struct hak_row *row = hak_slab_row(slab);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) hak_add(&heap->slab_count, 1);
    slab->next = slab->prev = 0;
    slab->pending = 0;
    hak_slab_records_own(slab, heap); /* it may have been changing hands */
    hak_given_taken(heap, row, hak_slab_collect(slab));
    uint32_t free_count = 0;
    for (unsigned i = 0; i < class->word_count; i++)
        free_count += hak_word_count(hak_load_relaxed(&row->word[i]) & hak_class_valid(class, i));
    uint32_t out = class->capacity - free_count;
    hak_row_arm(row, out, 0);
    slab->place = HAK_SLAB_FULL;
    if (free_count) hak_event(heap, slab); /* to the list, or to its end */
    else hak_row_arm(row, out, out / 8 ? out / 8 : 1);
}

static void heap_to_list(struct hak_heap *heap, void *survivor) {
    if (heap == survivor || hak_load_relaxed(&heap->epoch) == hak_load_relaxed(&hak_epoch)) return;
    hak_store_relaxed(&heap->takes_letters, 0);
    if (heap->had_letters || hak_load_relaxed(&heap->letters) != 0) hak_letters_forward(heap, heap);
    hak_batch_flush(heap);
    hak_kept_flush_vanished(heap);
    hak_store_release(&heap->epoch, hak_load_relaxed(&hak_epoch)); /* last: from here on others may steal what it keeps */
    hak_heap_dead_give(heap);
}

HAK_COLD void hak_fork_rebuild(struct hak_heap *survivor) {
    survivor->is_survivor = 0;
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    hak_heap_each(heap_blank, survivor);
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (hak_unit_ready(number) && hak_chunk_ready(number)) hak_span_room(number); /* who vanished may have been about to say so */
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + hak_word_first(live));
            struct hak_heap *owner = atomic_load(&slab->owner);
            bool is_survivors = owner == survivor || (owner && HAK_UNLIKELY(hak_load_relaxed(&owner->home) == survivor));
            if (is_survivors) { /* mail that was under way to it is void */
                if (slab->place == HAK_SLAB_NONE || slab->pending) continue;
                hak_middle_collect(owner, slab);
                uint32_t count = hak_slab_collect(slab);
                struct hak_row *row = hak_slab_row(slab);
                if (count == 0) continue;
                hak_given_taken(owner, row, count);
                hak_row_arm(row, hak_row_out(row) - count, 0);
                hak_event(owner, slab);
            } else if (owner && hak_load_relaxed(&owner->epoch) != epoch) { /* NULL: it ended since we looked, and its chunk with it */
                slab_rebuild(owner, slab);
            }
        }
    }
    hak_heap_each(heap_to_list, survivor);
    hak_family_recount();
}
