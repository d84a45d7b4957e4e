/* visit.c - malloc's slow path: the bin is empty.
 *
 *   hak_visit
 *     chores            mail, pending events, the clock; in a child the first steps
 *     rare class        one block of the next coarser class, until two were asked for, or many where there are many heaps
 *     current slab      its next word, if it was not gone through while others have more; before it opens a page, above 1 KiB, mail, and
 *                       now and then a block that a coarser class has at hand (heap/borrow.c); then what strangers gave back to it; else
 *                       it is full
 *     partial slabs     of this class in this heap
 *     a dead heap's     partial slab of this class
 *     a new slab
 *
 * Threads:   the owner. Taking words needs the slab's claim, because a third thread may be returning its pages.
 * Measured:  a whole word a visit, up to 64 KiB: 24 KiB cost 2 to 6% more time in mixes of sizes, 8 KiB a quarter more in a
 *            storm of small batches; memory is the same since new blocks are opened by the page (docs/experiments.md).
 */
#include "heap/borrow.h"
#include "heap/family.h"
#include "heap/kept.h"
#include "heap/scarce.h"

#include "memory/purge.h"
#include "heap/pool.h"

#include "heap/hooks.h"
#include "rules/options.h"

void *(*hak_heap_on_shortage)(size_t bytes, struct hak_heap *heap, unsigned class_index);
void *(*hak_heap_apart)(size_t bytes, struct hak_heap *heap);
hak_heap_slab_function *hak_heap_on_slab;
HAK_ALIGNED(HAK_LINE) struct hak_hooks hak_hooks;
char hak_watched_mark[HAK_LINE] HAK_ALIGNED(HAK_LINE);

/* The bits that were just taken go into the bin, but for the first block, which is the result. */
HAK_INLINE void *into_bin(struct hak_shelf *shelf, struct hak_bin *bin, struct hak_row *row, unsigned index, uint64_t word,
                          uint32_t count, bool *is_ahead) {
    size_t bytes = row->block_bytes;
    char *base = row->start + (size_t)index * 64 * bytes;
    hak_owner_add(&shelf->handed, count);
    bin->base = base;
    /* release: base before word, so that a forked child finds a pair that fits */
    __atomic_store_n(&bin->word, word & (word - 1), __ATOMIC_RELEASE);
    void *block = base + hak_word_first(word) * bytes;
    *is_ahead = hak_owner_passes(&shelf->ahead, count, &block);
    return block;
}

/* Where who visits sees to it that a sample is taken: malloc's caller is his. */
static HAK_NOINLINE void *into_bin_noted(struct hak_heap *heap, struct hak_row *row, unsigned index, uint64_t word, uint32_t count) {
    bool is_ahead;
    struct hak_shelf *shelf = hak_shelf_of(heap, row->class_index);
    void *block = into_bin(shelf, hak_bin_of(heap, row->class_index), row, index, word, count, &is_ahead);
    if (HAK_UNLIKELY(is_ahead)) heap->is_ahead = 1; /* among what the bin has: it stays there */
    else if (hak_scarce_is(shelf, count)) return hak_scarce_note(heap, row, block, 1);
    return block;
}

/* Apart, as take_opened() is. */
static HAK_NOINLINE void *take_claimed(struct hak_heap *heap, struct hak_row *row) {
    uint32_t count;
    uint64_t opened = heap->opened_bytes;
    uint64_t word = hak_slab_take_claimed(row->slab, row, &count, &heap->free_sum, &heap->opened_bytes);
    if (heap->opened_bytes != opened) hak_heap_chores_call(heap); /* it grows: is there mail? */
    unsigned index = hak_load_relaxed(&row->slab->cursor);
    hak_slab_unclaim(row->slab);
    if (HAK_UNLIKELY(word == 0)) return NULL;
    return into_bin_noted(heap, row, index, word, count);
}

/* The next word of a slab; NULL when it has none now, *claimed when a third thread is at it. */
static void *take(struct hak_heap *heap, struct hak_row *row, bool *claimed) {
    *claimed = !hak_slab_claim(row->slab);
    if (HAK_UNLIKELY(*claimed)) return NULL;
    hak_slab_turn_claimed(row->slab, row);
    return take_claimed(heap, row);
}

static void become_full(struct hak_row *row) {
    const struct hak_class *class = hak_slab_class(row->slab);
    row->slab->place = HAK_SLAB_FULL;
    hak_row_arm(row, class->capacity, hak_relist_blocks(class));
}

static void *take_from_strangers(struct hak_heap *heap, unsigned index) {
    struct hak_shelf *shelf = hak_shelf_of(heap, index);
    struct hak_row *row = shelf->current;
    bool claimed = !hak_slab_claim(row->slab);
    if (!claimed) {
        hak_slab_unclaim(row->slab);
        hak_middle_collect(heap, row->slab);
        uint32_t count = hak_slab_collect(row->slab);
        hak_row_arm(row, hak_row_out(row) - count, 1);
        HAK_COUNT(&heap->counters, collected, count);
        hak_given_taken(heap, row, count);
        void *block = take(heap, row, &claimed);
        if (block) {
            HAK_COUNT(&heap->counters, visit_collect, 1);
            return block;
        }
    }
    shelf->current = NULL;
    if (claimed) {
        uint32_t out = hak_row_out(row);
        HAK_COUNT(&heap->counters, visit_claimed, 1);
        hak_row_arm(row, out, out); /* its last free is not to be missed: nothing else would end it */
        if (out) hak_list_push(heap, row->slab);
        else hak_event_finish(heap, row->slab); /* nothing of it is out: no event would come to end it */
    } else {
        become_full(row);
    }
    return NULL;
}

/* A watched block in a slab that was left alone until now: did it outlive the others? */
static HAK_NOINLINE void look(struct hak_slab *slab) {
    if (!hak_slab_claim(slab)) return;
    hak_slab_look_claimed(slab);
    hak_slab_unclaim(slab);
}

/* So much of a heap was opened before it counts what its classes grow by: the counts may lie in a page of their own. */
enum { GROWN_FROM = 1 << 20, GROWN_SHARE = 4 };

/* Of a class that wants a slab in new memory. It grows densely if it filled its last ones, a quarter of huge_from_mb in all, without turning to
 * one that had blocks back: whatever the other classes have open, it will fill this one, too. */
static enum hak_growth growth_of(struct hak_heap *heap, unsigned index) {
    if (heap->opened_bytes < GROWN_FROM) return HAK_GROWTH_SOME;
    uint8_t *grown = &heap->grown[index];
    if (*grown < UINT8_MAX) ++*grown;
    uint64_t bytes = (uint64_t)*grown * hak_classes[index].granules * HAK_GRANULE_BYTES;
    return bytes > (HAK_OPT(huge_from_mb) << 20) / GROWN_SHARE ? HAK_GROWTH_DENSE : HAK_GROWTH_SOME;
}

static void *take_from_partial(struct hak_heap *heap, unsigned index) {
    struct hak_shelf *shelf = hak_shelf_of(heap, index);
    hak_slab_name next;
    for (struct hak_slab *slab = hak_slab_named(shelf->partial); slab; slab = hak_slab_named(next)) {
        struct hak_row *row = hak_slab_row(slab);
        bool claimed;
        next = slab->next;
        if (HAK_UNLIKELY(hak_load_relaxed(&slab->sample))) look(slab);
        void *block = take(heap, row, &claimed);
        if (claimed) continue;
        hak_list_remove(heap, slab);
        if (block) {
            slab->place = HAK_SLAB_CURRENT;
            shelf->current = row;
            if (heap->opened_bytes >= GROWN_FROM) heap->grown[index] = 0;
            HAK_COUNT(&heap->counters, visit_partial, 1);
            return block;
        }
        become_full(row);
    }
    return NULL;
}

static void *take_from(struct hak_heap *dead, struct hak_heap *heap, unsigned index) {
    hak_mail_take(dead);
    if (HAK_UNLIKELY(dead->pending)) hak_event_pending(dead);
    struct hak_slab *slab = index < hak_shelf_end(dead) ? hak_slab_named(hak_shelf_of(dead, index)->partial) : NULL;
    if (!slab || !hak_slab_claim(slab)) return NULL;
    hak_list_remove(dead, slab);
    hak_slab_give_claimed(slab, heap);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) hak_family_slab_moves(dead, heap);
    hak_slab_unclaim(slab);
    hak_list_push(heap, slab);
    return take_from_partial(heap, index);
}

struct asked { struct hak_heap *heap; unsigned index; void *block; };

static bool ask_dead(struct hak_heap *dead, void *context) {
    struct asked *asked = context;
    if (!hak_heap_is_kin(dead, asked->heap) || !hak_heap_dead_claim(dead)) return false;
    asked->block = take_from(dead, asked->heap, asked->index);
    hak_heap_dead_unclaim(dead);
    return asked->block != NULL;
}

/* One is asked; where memory is short all are. */
static HAK_NOINLINE void *take_from_dead(struct hak_heap *heap, unsigned index) {
    struct asked asked = { heap, index, NULL };
    struct hak_heap *dead;
    if (HAK_UNLIKELY(heap->is_short)) {
        hak_heap_each_own(ask_dead, &asked);
    } else if ((dead = hak_heap_dead_first()) != NULL) {
        asked.block = take_from(dead, heap, index);
        hak_heap_dead_give(dead);
    }
    if (asked.block) HAK_COUNT(&heap->counters, visit_dead, 1);
    return asked.block;
}

/* Of a slab just cut that a third thread has had for long: a sweep that waits for the kernel, or that has vanished. It ends when the claim does.
 * False: another one may not be cut. */
static HAK_COLD bool leave_claimed(struct hak_heap *heap, unsigned index, struct hak_row *row) {
    hak_shelf_of(heap, index)->current = NULL;
    hak_row_arm(row, 0, 0);
    hak_event_finish(heap, row->slab);
    return !hak_load_relaxed(&heap->is_instance) || hak_family_slab_again(heap, hak_classes[index].granules);
}

static void *take_from_new(struct hak_heap *heap, unsigned index) {
    enum { TURNS_MAX = 200 }; /* some 20 ms */
    struct hak_slab *slab = hak_slab_cut_again(heap, index);
    bool is_more = false; /* than the heap had */
    if (!slab) {
        /* Cut in what a large block left, sixteen slabs of which a page each was wanted held 480 pages (sqlite: 10.4 MiB instead of 9.4). */
        bool wants_little = hak_shelf_of(heap, index)->handed < hak_classes[index].capacity;
        if (!wants_little) hak_kept_make_room(heap, hak_classes[index].granules);
        if (HAK_UNLIKELY(heap->may_make_room)) {
            bool takes_clean = wants_little && hak_heap_crowd() == 0; /* where heaps are many the other class would miss it */
            size_t room = hak_event_make_room(heap, hak_classes[index].granules, takes_clean);
            if (room != HAK_NO_GRANULE) {
                slab = hak_slab_cut_at(heap, index, room);
                wants_little = false; /* what is resident is better than new memory after all */
            }
        }
        is_more = !slab;
        if (is_more) slab = hak_slab_cut(heap, index, wants_little ? HAK_GROWTH_LITTLE : growth_of(heap, index));
        if (!slab) return NULL;
    }
    HAK_COUNT(&heap->counters, visit_new_slab, 1);
    struct hak_shelf *shelf = hak_shelf_of(heap, index);
    shelf->current = hak_slab_row(slab);
    /* its pages are resident, and the class has filled a slab before: no first touch to save up, unless
     * pages are counted: for classes that it serves, too */
    bool is_few = hak_load_relaxed(&hak_rare_blocks) == HAK_RARE_BLOCKS && ((heap->middle_lent & HAK_CLASSES_LENT) == 0 || !hak_class_is_pair(index));
    bool is_open = slab->whole && is_few && shelf->handed > hak_slab_class(slab)->capacity;
    if (is_open) slab->frontier = UINT16_MAX;
    if (is_open && is_more) heap->opened_bytes += (uint64_t)hak_slab_class(slab)->granules << HAK_GRANULE_SHIFT; /* by huge pages it grows, too */
    bool claimed;
    void *block = take(heap, hak_slab_row(slab), &claimed);
    for (unsigned turn = 0; HAK_UNLIKELY(claimed) && turn < TURNS_MAX; turn++) { /* a sweep, at its one look; it may wait for this processor */
        hak_os_yield(turn);
        block = take(heap, hak_slab_row(slab), &claimed);
    }
    if (HAK_LIKELY(!claimed)) return block;
    return leave_claimed(heap, index, hak_slab_row(slab)) ? take_from_new(heap, index) : NULL;
}

/* Of an instance: what its family's dead ones have; NULL: it may have a new slab, or, there being no turn, the family's limit refuses that. */
static HAK_COLD void *take_from_family(struct hak_heap *heap, unsigned index, enum hak_turn *turn) {
    struct asked asked = { heap, index, NULL };
    if (hak_family_has_ended(heap)) hak_family_each(hak_load_relaxed(&heap->family), ask_dead, &asked);
    if (asked.block) {
        HAK_COUNT(&heap->counters, visit_dead, 1);
        return asked.block;
    }
    hak_family_slab_begins(heap, hak_classes[index].granules);
    if (heap->is_refused) *turn = HAK_TURN_NONE;
    return NULL;
}

static void *take_further(struct hak_heap *heap, unsigned index, enum hak_turn *turn) {
    hak_fork_check(heap);
    if (hak_mail_any(heap)) hak_mail_take(heap);
    void *block = hak_shelf_of(heap, index)->current ? take_from_strangers(heap, index) : NULL;
    if (block) return block;
    *turn = HAK_TURN_PARTIAL;
    block = take_from_partial(heap, index);
    if (block) return block;
    if (HAK_UNLIKELY(heap->is_survivor)) {
        hak_fork_rebuild(heap);
        block = take_from_partial(heap, index);
        if (block) return block;
    }
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) {
        block = take_from_family(heap, index, turn);
        if (block || *turn == HAK_TURN_NONE) return block;
    } else if (HAK_UNLIKELY(hak_heap_dead_any())) {
        block = take_from_dead(heap, index);
        if (block) return block;
    }
    block = take_from_new(heap, index);
    if (HAK_UNLIKELY(block == NULL)) {
        *turn = HAK_TURN_NONE;
        hak_family_slab_fails(heap, hak_classes[index].granules);
        return NULL;
    }
    *turn = HAK_TURN_NEW;
    return block;
}

/* What a class or pool has, without a page more for it. A block of its bin is no turn: the index stays. */
static HAK_COLD void *take_there(struct hak_heap *heap, unsigned c, unsigned *index, enum hak_turn *turn) {
    struct hak_bin *bin = hak_bin_of(heap, c);
    uint64_t word = bin->word;
    if (word != 0) {
        bin->word = word & (word - 1);
        return bin->base + hak_word_first(word) * (size_t)hak_classes[c].block_bytes;
    }
    void *block = hak_shelf_of(heap, c)->current ? take_from_strangers(heap, c) : NULL;
    if (!block && (block = take_from_partial(heap, c)) != NULL) *turn = HAK_TURN_PARTIAL;
    if (block) *index = c;
    return block;
}

/* Of a coarser class, whatever it has: less than twice what the size's own class has, which hak_check_size() lets pass. Aligned as in
 * hak_borrow_before(). */
static HAK_COLD void *take_coarser(size_t bytes, struct hak_heap *heap, unsigned *index, enum hak_turn *turn) {
    uint32_t align = hak_size_align(bytes, &hak_classes[*index]), too_much = hak_classes[*index].block_bytes * 2;
    void *block = NULL;
    hak_middle_flush(heap);
    for (unsigned c = hak_class_plain(*index) + 1; !block && c < HAK_SIZE_CLASS_COUNT && hak_classes[c].block_bytes < too_much; c++)
        if (hak_class_align(&hak_classes[c]) >= align) block = take_there(heap, c, index, turn);
    return block;
}

/* Of a class the pool may have free blocks, and of a pool the class, split or not. */
static HAK_COLD void *take_sibling(struct hak_heap *heap, unsigned *index, enum hak_turn *turn) {
    unsigned c = hak_class_plain(*index);
    if (c > HAK_SMALL_CLASS_MAX || !hak_load_acquire(&heap->pools)) return NULL;
    return take_there(heap, *index == c ? hak_pool_of(c) : c, index, turn);
}

/* No more memory. Of a class that another one serves there may be free blocks in slabs of its own, or room for a smaller slab; of one that
 * has become its own, free blocks where its pair served it. */
static HAK_COLD void *take_short(size_t bytes, struct hak_heap *heap, unsigned *index, enum hak_turn *turn) {
    unsigned exact = hak_borrow_exact(bytes, *index);
    void *block = NULL;
    if (exact != *index) {
        hak_borrow_class_grew(heap, exact);
        *index = exact;
        block = take_further(heap, exact, turn);
    } else if (hak_borrow_has_pair(exact)) {
        unsigned pair = hak_class_pair(exact);
        struct hak_bin *bin = hak_bin_of(heap, pair);
        uint64_t word = bin->word;
        if (word != 0) {
            bin->word = word & (word - 1);
            return bin->base + hak_word_first(word) * (size_t)hak_classes[pair].block_bytes;
        }
        hak_middle_flush(heap);
        block = take_further(heap, pair, turn);
        if (block) *index = pair;
    }
    if (!block) block = take_sibling(heap, index, turn);
    if (!block) block = take_coarser(bytes, heap, index, turn);
    return block ? block : __atomic_load_n(&hak_heap_on_shortage, __ATOMIC_RELAXED)(bytes, heap, exact);
}

/* A sample is among the blocks that a visit found. Whoever made `ahead` pass its highest is there for ever. */
static HAK_NOINLINE void *visited(size_t bytes, struct hak_heap *heap, size_t index, void *block) {
    heap->is_ahead = 0;
    return block ? HAK_HOOK(visited)(bytes, heap, (unsigned)index, block) : NULL;
}

static HAK_COLD void *visit_hurried(size_t bytes, struct hak_heap *heap, size_t index, void *block) {
    if (heap->is_ahead) return visited(bytes, heap, index, block);
    hak_heap_hurried(heap, (unsigned)index);
    return block;
}

HAK_INLINE void *visit_ends(size_t bytes, struct hak_heap *heap, size_t index, void *block) {
    return HAK_LIKELY((heap->is_ahead | heap->at_hand_most) == 0) ? block : visit_hurried(bytes, heap, index, block);
}

/* The current slab has no word left, or there is none. On the way here from malloc there are tail calls only, in a release
 * build: who called malloc is our caller. Where that is not so, it is another number. */
static HAK_NOINLINE void *visit_further(size_t bytes, struct hak_heap *heap, size_t shelf_index) {
    unsigned index = (unsigned)shelf_index;
    if (hak_shelf_of(heap, index)->rare < HAK_RARE_OFTEN) return hak_borrow_rare(bytes, heap, index); /* it has no slab */
    enum hak_turn turn = HAK_TURN_NONE;
    uint64_t opened = heap->opened_bytes;
    void *block = take_further(heap, index, &turn);
    hak_borrow_grew(heap, bytes, index, opened);
    if (HAK_UNLIKELY(block == NULL)) block = take_short(bytes, heap, &index, &turn);
    hak_heap_slab_function *told = __atomic_load_n(&hak_heap_on_slab, __ATOMIC_RELAXED);
    if (told && turn != HAK_TURN_NONE) {
        bool is_named = heap->from_address != NULL;
        told(heap, hak_shelf_of(heap, index)->current, turn, block,
             is_named ? heap->from_address : __builtin_return_address(0),
             is_named ? heap->from_stack : (uintptr_t)__builtin_dwarf_cfa());
    }
    return visit_ends(bytes, heap, index, block);
}

/* The slab in use, still claimed, would open a page, and a partly free one need not: they change places. */
static void *take_instead(struct hak_heap *heap, struct hak_row *old) {
    enum { LOOK = 2 };
    unsigned index = old->class_index, tries = 0;
    struct hak_shelf *shelf = hak_shelf_of(heap, index);
    uint32_t out = hak_row_out(old), count;
    if (out == 0) return NULL; /* it would have to end */
    for (struct hak_slab *slab = hak_slab_named(shelf->partial); slab && tries < LOOK; slab = hak_slab_named(slab->next), tries++) {
        struct hak_row *row = hak_slab_row(slab);
        if (!hak_slab_claim(slab)) continue;
        hak_slab_turn_claimed(slab, row);
        uint64_t word = hak_slab_take_claimed(slab, row, &count, &heap->free_sum, NULL);
        unsigned at = hak_load_relaxed(&slab->cursor);
        hak_slab_unclaim(slab);
        if (word == 0) continue;
        hak_slab_unclaim(old->slab);
        hak_list_remove(heap, slab);
        slab->place = HAK_SLAB_CURRENT;
        shelf->current = row;
        atomic_signal_fence(memory_order_seq_cst); /* no slab is in the list and in use, if a handler leaves by longjmp */
        hak_row_arm(old, out, out);
        hak_list_push(heap, old->slab);
        HAK_COUNT(&heap->counters, visit_partial, 1);
        return into_bin_noted(heap, row, at, word, count);
    }
    return NULL;
}

/* The slab in use, claimed, without opening a page. Apart, so that its callers may leave by tail calls: clang makes none where a local's
 * address was given away. */
static HAK_NOINLINE void *take_opened(struct hak_heap *heap, struct hak_row *row) {
    uint32_t count;
    if (row->slab->frontier == hak_row_out(row)) return NULL; /* all that was ever handed out is held: it grows */
    uint64_t word = hak_slab_take_claimed(row->slab, row, &count, &heap->free_sum, NULL);
    return word ? into_bin_noted(heap, row, hak_load_relaxed(&row->slab->cursor), word, count) : NULL;
}

/* The class earned its slab by asking often, there are many heaps now, and little of it is held: before a page is opened for it, it is
 * rare again, and the slab goes to the list. It is claimed. */
static HAK_COLD void *visit_little(size_t bytes, struct hak_heap *heap, struct hak_row *row) {
    unsigned index = row->class_index;
    void *block = take_opened(heap, row);
    hak_slab_unclaim(row->slab);
    if (block == NULL) {
        struct hak_shelf *shelf = hak_shelf_of(heap, index);
        uint32_t out = hak_row_out(row);
        shelf->current = NULL;
        shelf->rare = 0;
        hak_row_arm(row, out, out);
        hak_list_push(heap, row->slab);
        return hak_borrow_rare(bytes, heap, index);
    }
    HAK_COUNT(&heap->counters, visit_next_word, 1);
    return visit_ends(bytes, heap, index, block);
}

static bool is_rare_again(struct hak_heap *heap, const struct hak_row *row) {
    enum { LITTLE_BYTES = 16 << 10 };
    int32_t rare = hak_shelf_of(heap, row->class_index)->rare;
    if (rare < HAK_RARE_OFTEN || (rare & 1) != 0 || hak_load_relaxed(&hak_rare_blocks) == HAK_RARE_BLOCKS) return false; /* odd: it grew */
    uint32_t out = hak_row_out(row);
    return out > 0 && out * row->block_bytes < LITTLE_BYTES;
}

/* The slab in use was gone through to its end: what was freed in it meanwhile are a block or two a word, and others wait that have more. */
static bool is_gone_through(const struct hak_shelf *shelf, const struct hak_row *row, uint32_t share) {
    const struct hak_slab *slab = row->slab;
    const struct hak_class *class = hak_slab_class(slab);
    if (!shelf->partial || class->capacity - hak_row_out(row) >= share) return false;
    for (unsigned i = hak_load_relaxed(&slab->cursor); i < slab->last_word; i++)
        if (hak_load_relaxed(&row->word[i])) return false;
    return (hak_load_relaxed(&row->word[slab->last_word]) & hak_class_valid(class, slab->last_word)) == 0;
}

/* It is claimed. It comes back when a share of it is free, as if it were full. */
static HAK_NOINLINE void *visit_next_slab(size_t bytes, struct hak_heap *heap, struct hak_row *row, uint32_t share) {
    uint32_t out = hak_row_out(row);
    hak_slab_unclaim(row->slab);
    hak_shelf_of(heap, row->class_index)->current = NULL;
    row->slab->place = HAK_SLAB_FULL;
    hak_row_arm(row, out, share - (hak_slab_class(row->slab)->capacity - out));
    return visit_further(bytes, heap, row->class_index);
}

/* What strangers freed meanwhile. False: the slab, which was claimed, is in use no longer, or a third thread is at it. */
static HAK_COLD bool mail_before(struct hak_heap *heap, struct hak_row *row, unsigned index) {
    hak_slab_unclaim(row->slab);
    hak_fork_check(heap);
    hak_mail_take(heap);
    return hak_shelf_of(heap, index)->current == row && hak_slab_claim(row->slab); /* else the row may be another heap's by now */
}

/* The slab in use, claimed: what it has opened, what strangers gave back, what another class has at hand, or a page more. */
static HAK_NOINLINE void *visit_growing(size_t bytes, struct hak_heap *heap, struct hak_row *row) {
    unsigned index = row->class_index;
    bool is_lent = hak_borrow_may(heap, index), is_middle = hak_class_is_middle(index);
    bool has_mail = is_middle && hak_load_relaxed(&heap->mail) != 0;
    void *block = NULL;
    if (!is_middle && hak_load_relaxed(&heap->letters) != 0) { /* what is open first: a letter should have time to fill */
        block = take_opened(heap, row);
        has_mail = block == NULL;
    }
    if (has_mail && !mail_before(heap, row, index)) return visit_further(bytes, heap, index);
    if (!block && (is_lent || has_mail)) block = take_opened(heap, row);
    if (!block && is_lent && (block = hak_borrow_before(bytes, heap, index)) != NULL) {
        hak_slab_unclaim(row->slab);
        return block;
    }
    if (block) {
        hak_slab_unclaim(row->slab);
    } else {
        uint64_t opened = heap->opened_bytes;
        block = take_claimed(heap, row);
        hak_borrow_grew(heap, bytes, index, opened);
        if (HAK_UNLIKELY(block == NULL)) return visit_further(bytes, heap, index);
    }
    HAK_COUNT(&heap->counters, visit_next_word, 1);
    return visit_ends(bytes, heap, index, block);
}

/* Blocks above 1 KiB: slabs of few of them, of which two are soon in use. */
static HAK_NOINLINE void *visit_thin(size_t bytes, struct hak_heap *heap, struct hak_row *row) {
    unsigned index = row->class_index;
    void *block = take_opened(heap, row);
    if (block) {
        hak_slab_unclaim(row->slab);
        HAK_COUNT(&heap->counters, visit_next_word, 1);
    } else if ((block = take_instead(heap, row)) == NULL) {
        return visit_growing(bytes, heap, row);
    }
    return visit_ends(bytes, heap, index, block);
}

/* The slab in use is claimed and has turned to its next word, but enough is not to be had there. */
static HAK_NOINLINE void *visit_sparse(size_t bytes, struct hak_heap *heap, struct hak_row *row) {
    unsigned index = row->class_index;
    if (HAK_UNLIKELY(is_rare_again(heap, row))) return visit_little(bytes, heap, row);
    if (hak_class_is_middle(index) && hak_shelf_of(heap, index)->partial) return visit_thin(bytes, heap, row);
    uint32_t share = hak_relist_blocks(hak_slab_class(row->slab));
    if (is_gone_through(hak_shelf_of(heap, index), row, share)) return visit_next_slab(bytes, heap, row, share);
    return visit_growing(bytes, heap, row);
}

/* No slab is in use: the class is rare, or has filled its slabs. What a coarser class has at hand is no visit to the clock. */
static HAK_NOINLINE void *visit_without(size_t bytes, struct hak_heap *heap, size_t index) {
    void *(*apart)(size_t, struct hak_heap *) = __atomic_load_n(&hak_heap_apart, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(apart != NULL) && !hak_load_relaxed(&heap->is_instance)) return apart(bytes, heap);
    if (index > HAK_SMALL_CLASS_MAX) return visit_further(bytes, heap, index);
    struct hak_shelf *shelf = &heap->shelf[index];
    unsigned coarse = hak_classes[index].coarse;
    struct hak_bin *bin = &heap->bin[coarse];
    uint64_t word = bin->word;
    if (word == 0 || shelf->rare >= HAK_RARE_OFTEN || hak_borrow_asks(shelf) + 1 >= (int32_t)hak_load_relaxed(&hak_rare_blocks))
        return visit_further(bytes, heap, index);
    shelf->rare++;
    heap->clock_in += HAK_VISIT_CLOCK;
    HAK_COUNT(&heap->counters, visit_coarse, 1);
    bin->word = word & (word - 1);
    return bin->base + hak_word_first(word) * (size_t)hak_classes[coarse].block_bytes;
}

static HAK_NOINLINE void *visit_few(size_t bytes, struct hak_heap *heap, size_t index, void *block) {
    return visit_ends(bytes, heap, index, hak_scarce_note(heap, hak_shelf_of(heap, (unsigned)index)->current, block, HAK_SCARCE_SAMPLED));
}

/* `is_sampled`: one in so many, which may look further than others. */
HAK_INLINE void *visit(size_t bytes, struct hak_heap *heap, size_t index, struct hak_shelf *shelf, struct hak_bin *bin, bool is_sampled) {
    struct hak_row *row = shelf->current;
    if (HAK_UNLIKELY(row == NULL)) return visit_without(bytes, heap, index);
    if (HAK_UNLIKELY(!hak_slab_claim(row->slab))) return visit_further(bytes, heap, index);
    struct hak_slab *slab = row->slab;
    uint32_t count;
    hak_slab_turn_claimed(slab, row);
    uint64_t word = hak_slab_take_plain_claimed(slab, row, heap->opened_bytes, &count);
    if (word == 0) return visit_sparse(bytes, heap, row);
    unsigned at = hak_load_relaxed(&slab->cursor);
    hak_slab_unclaim(slab);
    HAK_COUNT(&heap->counters, visit_next_word, 1);
    bool is_ahead;
    void *block = into_bin(shelf, bin, row, at, word, count, &is_ahead);
    if (HAK_UNLIKELY(is_ahead)) return visited(bytes, heap, index, block);
    if (is_sampled && hak_scarce_is(shelf, count)) return visit_few(bytes, heap, index, block);
    return HAK_LIKELY(heap->at_hand_most == 0) ? block : visit_hurried(bytes, heap, index, block);
}

/* Any class or pool. Its bin may have blocks: after chores that split the class, or joined it again. */
static HAK_NOINLINE void *visit_plain(size_t bytes, struct hak_heap *heap, unsigned index) {
    struct hak_bin *bin = hak_bin_of(heap, index);
    uint64_t word = bin->word;
    if (HAK_LIKELY(word == 0)) return visit(bytes, heap, index, hak_shelf_of(heap, index), bin, true);
    bin->word = word & (word - 1);
    return bin->base + hak_word_first(word) * (size_t)hak_classes[index].block_bytes;
}

static HAK_NOINLINE void *visit_due(size_t bytes, struct hak_heap *heap, unsigned index) {
    hak_visit_chores_due(heap);
    if (HAK_UNLIKELY(hak_heap_is_slow(heap)) || HAK_UNLIKELY(heap->at_hand_most != 0)) hak_heap_hurry(heap);
    return visit_plain(bytes, heap, index);
}

void *hak_visit_any(size_t bytes, struct hak_heap *heap, unsigned index) {
    HAK_ASSERT(index > 0 && index < HAK_SHELF_COUNT);
    if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) return visit_due(bytes, heap, index);
    return visit_plain(bytes, heap, index);
}

/* Its usual way calls nothing: all else is a tail call. The class is not split. */
void *hak_visit(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    HAK_ASSERT(class_index > 0 && class_index < HAK_CLASS_COUNT && !hak_bin_at(heap, class_index)->word);
    if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) return visit_due(bytes, heap, class_index);
    size_t index = class_index;
    return visit(bytes, heap, index, &heap->shelf[index], hak_bin_at(heap, index), false);
}
