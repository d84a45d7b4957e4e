/* sampler.c - which allocations are samples.
 *
 * The allocations of a class in a heap are counted already: blocks handed to its bin, less those left there. The next
 * sample is a number on that count. A visit that comes by before it leaves at most as many blocks in the bin as there are
 * to go, so the sampled allocation finds an empty bin and visits, with its own call site on the stack. Nothing is
 * counted for the sake of sampling, a word that is put back needs no redraw, and the fast path does not know.
 *
 * Large blocks are drawn one by one. Blocks above 1 KiB that the heap keeps (heap/middle.c) are given back when they are
 * more than there is to go.
 *
 * While sampling is on a heap's chores always wait (its clock stands at 0), so each visit comes here; chores proper are
 * done as often as before. While it is off nothing of this is called.
 *
 * A class that is split by lifetime (heap/pool.h) has two counts, its own and its pool's: `class_index` may be either's.
 *
 * Owns:      the rate in force, the hooks, each heap's struct hak_watch; for large blocks which row is whose.
 * Threads:   each heap's owner; what large blocks name is exchanged, so that one thread ends a row.
 * Measured:  docs/recording.md.
 */
#include "watch/sampler.h"

#include "heap/hooks.h"
#include "memory/large.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/draw.h"
#include "watch/published.h"
#include "watch/tray.h"

/* --- the rate --- */

static hak_atomic_u64 wanted[HAK_SAMPLE_WHO_COUNT]; /* rate << 1 | stacks */
static hak_atomic_u64 rate_wanted;                   /* the same, of all */
static hak_atomic_u64 rate_now;                      /* the same, doubled as often as there were too many samples */
static hak_atomic_u32 doubled, recent;               /* how often; samples since the last look */
static hak_atomic_u32 generation = 1;                /* moves with the rate */

uint64_t hak_sample_rate(void) { return hak_load_relaxed(&rate_now) >> 1; }
static bool stacks_wanted(void) { return hak_load_relaxed(&rate_now) & 1; }

static void rate_set(void) {
    uint64_t all = hak_load_relaxed(&rate_wanted), rate = (all >> 1) << hak_load_relaxed(&doubled);
    hak_store_relaxed(&rate_now, rate << 1 | (all & 1));
    atomic_fetch_add(&generation, 1); /* after the rate: pairs with draw() */
    __atomic_store_n(&hakmem_published.rate_bytes, rate, __ATOMIC_RELAXED);
    __atomic_store_n(&hakmem_published.is_on, rate != 0, __ATOMIC_RELAXED);
}

/* A program that allocates terabytes a second pays for its samples, not for its bytes. Why the rate moves depends on what
 * was, never on the draws that are pending, so what they are replaced by is as right. */
enum { DOUBLED_MAX = 12, LOOKS_PER_S = 50 };

static void sample_counted(void) {
    uint64_t most = HAK_OPT(sample_most) / LOOKS_PER_S;
    uint32_t count = hak_add(&recent, 1) + 1;
    if (HAK_OPT(sample_most) == 0 || count <= most) return;
    uint32_t times = hak_load_relaxed(&doubled);
    if (times >= DOUBLED_MAX || !hak_cas(&recent, &count, 0)) return;
    if (hak_cas(&doubled, &times, times + 1)) rate_set();
}

void hak_sample_tick(uint64_t now_ms) {
    static uint64_t last_ms;
    uint64_t elapsed = now_ms - last_ms, count = hak_exchange(&recent, 0);
    uint32_t times = hak_load_relaxed(&doubled);
    last_ms = now_ms;
    if (times && (HAK_OPT(sample_most) == 0 || count * 4000 < HAK_OPT(sample_most) * elapsed) &&
        hak_cas(&doubled, &times, times - 1))
        rate_set();
}

/* --- a heap's part --- */

static void thread_look(struct hak_watch *watch) {
    uintptr_t pointer = (uintptr_t)__builtin_thread_pointer();
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    if (HAK_LIKELY(watch->thread_pointer == pointer && watch->epoch == epoch)) return;
    watch->thread_pointer = pointer;
    watch->epoch = epoch;
    watch->thread = 0;
    watch->bounds = (struct hak_stack_bounds){ 0, 0 };
}

struct hak_watch *hak_watch_of(struct hak_heap *heap) {
    struct hak_watch *watch = heap->watch;
    if (HAK_LIKELY(watch != NULL)) return watch;
    if (hak_heap_is_none(heap)) return NULL;
    watch = hak_os_map(hak_round_up(sizeof *watch, hak_os_page_bytes()));
    if (!watch) return NULL;
    watch->random = (uintptr_t)watch ^ hak_os_ticks() ^ hak_os_clock_ns() << 20 ^ (uint64_t)hak_os_tid() << 40;
    heap->watch = watch;
    return watch;
}

/* Blocks of the class that this heap gave to the program, the bin being empty or not. */
static uint64_t allocated(struct hak_heap *heap, unsigned class_index) {
    uint64_t count = hak_shelf_of(heap, class_index)->handed - hak_word_count(hak_bin_of(heap, class_index)->word);
    return hak_class_is_middle(class_index) ? count + hak_middle_of(heap, class_index)->handed : count;
}

static void draw(struct hak_heap *heap, struct hak_watch *watch, unsigned class_index) {
    watch->drawn[class_index] = hak_load_acquire(&generation); /* before the rate */
    uint64_t rate = hak_sample_rate(), bytes = hak_classes[class_index].block_bytes;
    watch->due[class_index] =
        allocated(heap, class_index) + (rate ? hak_draw_distance(&watch->random, bytes, rate) - 1 : UINT64_C(1) << 60);
}

/* The clock stands at 0 for us, and what it would show is its rest: so chores come as often as if nobody looked. */
static void clock_hold(struct hak_heap *heap) {
    heap->clock_rest += heap->clock_in;
    heap->clock_in = 0;
}
static void chores(struct hak_heap *heap) {
    clock_hold(heap);
    if (HAK_LIKELY((heap->clock_rest > 0) & (heap->batches == 0))) return;
    hak_visit_chores_due(heap);
    clock_hold(heap);
}

/* --- small blocks --- */

/* The ordinary block that comes next: on its page the sample would be. A look without the claim, at what is ours. */
static const void *place_next(struct hak_heap *heap, unsigned class_index) {
    const struct hak_shelf *shelf = hak_shelf_of(heap, class_index);
    struct hak_row *row = shelf->current;
    struct hak_slab *slab = row ? row->slab : hak_slab_named(shelf->partial);
    if (!slab) return NULL;
    row = hak_slab_row(slab);
    for (unsigned i = slab->cursor; i <= slab->last_word; i++) {
        uint64_t word = hak_load_relaxed(&row->word[i]) & hak_class_valid(hak_slab_class(slab), i);
        if (word) return row->start + (i * 64 + hak_word_first(word)) * (size_t)row->block_bytes;
    }
    return row->start;
}

/* Reached by tail calls from the exported function: its return address and frame pointer are the caller's. */
static HAK_NOINLINE void *sample_small(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_watch *watch = heap->watch;
    hak_atomic_u32 *number;
    uint64_t rate = hak_sample_rate();
    watch->busy = 1;
    void *block = rate ? hak_tray_take(hak_class_plain(class_index), &number) : NULL;
    if (block) {
        size_t usable = hak_classes[class_index].block_bytes;
        struct hak_sample sample = { .block = block, .place = place_next(heap, class_index),
                                     .requested_bytes = bytes < usable ? bytes : usable, .block_bytes = usable,
                                     .rate_bytes = rate, .weight = hak_sample_weight(usable, rate),
                                     .class_index = hak_class_plain(class_index) };
        thread_look(watch);
        hak_store_release(number, hak_record_alloc(heap, watch, &sample, 0, here, stacks_wanted()));
    } else if (rate) {
        __atomic_fetch_add(&hakmem_published.lost_block, 1, __ATOMIC_RELAXED);
    }
    sample_counted();
    draw(heap, watch, class_index);
    watch->busy = 0;
    return block ? block : hak_visit_plain(heap, class_index);
}

static HAK_NOINLINE void *visit_rare(size_t bytes, struct hak_heap *heap, struct hak_watch *watch, unsigned class_index) {
    watch->rare_bytes = bytes; /* a visit of the coarser class is on the way, if its bin is empty */
    void *block = hak_visit_plain(heap, class_index);
    watch->rare_bytes = 0;
    return block;
}

static void *on_visit(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    struct hak_watch *watch = hak_watch_of(heap);
    if (HAK_UNLIKELY(!watch)) {
        hak_visit_chores_due(heap);
        return hak_visit_plain(heap, class_index);
    }
    chores(heap);
    if (HAK_UNLIKELY(watch->busy || heap->is_short || hak_bin_of(heap, class_index)->word)) return hak_visit_plain(heap, class_index);
    const struct hak_shelf *shelf = hak_shelf_of(heap, class_index);
    if (shelf->rare < HAK_RARE_BLOCKS && !shelf->current &&
        hak_classes[class_index].coarse != class_index && !watch->rare_bytes)
        return visit_rare(bytes, heap, watch, class_index);
    if (watch->rare_bytes) {
        bytes = watch->rare_bytes;
        watch->rare_bytes = 0;
    }
    if (HAK_UNLIKELY(watch->drawn[class_index] != hak_load_relaxed(&generation))) draw(heap, watch, class_index);
    uint64_t count = shelf->handed, due = watch->due[class_index]; /* allocated(), the bin being empty */
    if (hak_class_is_middle(class_index)) count += hak_middle_of(heap, class_index)->handed;
    if (count >= due) return sample_small(bytes, heap, class_index);
    void *block = hak_visit_plain(heap, class_index);
    uint64_t left = due - count - 1;
    if (HAK_UNLIKELY(left < 64) && block) hak_bin_trim(heap, class_index, (unsigned)left);
    return block;
}

static void on_kept(struct hak_heap *heap, unsigned class_index) {
    struct hak_watch *watch = heap->watch;
    if (HAK_UNLIKELY(!watch)) {
        hak_middle_chores(heap);
        return;
    }
    const struct hak_middle *middle = hak_middle_of(heap, class_index);
    /* allocated() and what may be allocated without a visit: the bin's blocks fall out of the sum */
    uint64_t reach = hak_shelf_of(heap, class_index)->handed + middle->handed + hak_middle_count(middle);
    if (HAK_UNLIKELY((reach > watch->due[class_index]) | (watch->drawn[class_index] != hak_load_relaxed(&generation))))
        hak_middle_flush_class(heap, class_index);
    clock_hold(heap);
    if (HAK_UNLIKELY((heap->clock_rest <= 0) | (heap->batches != 0))) {
        hak_middle_chores(heap);
        clock_hold(heap);
    }
}

/* --- small blocks: free and questions --- */

static bool on_free(struct hak_heap *heap, void *block) {
    struct hak_tray_place place;
    if (!hak_tray_find(block, &place) || place.start != block || place.is_free) return false;
    uint32_t number = hak_exchange(place.number, 0);
    if (number) hak_record_free(heap, number, true);
    return hak_tray_give(block);
}

static size_t bytes_of(const void *block) {
    struct hak_tray_place place;
    return hak_tray_find(block, &place) && place.start == block && !place.is_free ? place.bytes : 0;
}

static bool place_of(const void *address, const char **start, size_t *bytes, bool *is_free) {
    struct hak_tray_place place;
    if (!hak_tray_find(address, &place)) return false;
    *start = place.start;
    *bytes = place.bytes;
    *is_free = place.is_free;
    return true;
}

static void on_site(void *block, uintptr_t site) {
    struct hak_tray_place place;
    uint32_t number = hak_tray_find(block, &place) ? hak_load_relaxed(place.number) : 0;
    if (number) __atomic_store_n(&hak_stack_row_at(hak_record_row(number)->stack)->explicit_site, site, __ATOMIC_RELAXED);
}

static void on_census(struct hak_census *census) { hak_tray_census(census->live, census->handed); }

/* --- large blocks: which row is whose, by their first granule; leaves of 1,024 granules --- */

enum { LEAF_SHIFT = 10, LEAVES = 1 << 14 };
static _Atomic(hak_atomic_u32 *) leaves[LEAVES];

static hak_atomic_u32 *large_number(const void *block, bool make) {
    if (!hak_region_holds(block)) return NULL;
    size_t granule = hak_granule_of(block), leaf = granule >> LEAF_SHIFT;
    if (leaf >= LEAVES) return NULL;
    hak_atomic_u32 *numbers = hak_load_acquire(&leaves[leaf]), *none = NULL;
    if (!numbers && make) {
        size_t bytes = hak_round_up(sizeof *numbers << LEAF_SHIFT, hak_os_page_bytes());
        numbers = hak_os_map(bytes);
        if (numbers && !hak_cas(&leaves[leaf], &none, numbers)) {
            hak_os_unmap(numbers, bytes);
            numbers = none;
        }
    }
    return numbers ? &numbers[granule & ((1 << LEAF_SHIFT) - 1)] : NULL;
}

/* Bytes to the next sample are exponential; what is left of them says of each block whether it is one, as if each were drawn. */
static bool large_hit(struct hak_watch *watch, size_t bytes, uint64_t rate) {
    uint32_t now = hak_load_relaxed(&generation);
    if (HAK_UNLIKELY(watch->large_drawn != now)) {
        watch->large_drawn = now;
        watch->large_left = hak_draw_exponential(&watch->random) * (double)rate;
    }
    watch->large_left -= (double)bytes;
    if (HAK_LIKELY(watch->large_left > 0)) return false;
    watch->large_left = hak_draw_exponential(&watch->random) * (double)rate; /* the overshoot is not carried */
    return true;
}

static HAK_NOINLINE uint32_t large_sample(struct hak_heap *heap, struct hak_watch *watch, void *block, size_t requested,
                                          size_t drawn, size_t from) {
    struct hak_stack_here here = HAK_STACK_HERE();
    uint64_t rate = hak_sample_rate();
    struct hak_sample sample = { .block = block, .place = block, .requested_bytes = requested, .block_bytes = drawn,
                                 .rate_bytes = rate, .weight = hak_sample_weight(drawn, rate) };
    watch->busy = 1;
    thread_look(watch);
    uint32_t number = hak_record_alloc(heap, watch, &sample, from, here, stacks_wanted());
    sample_counted();
    watch->busy = 0;
    return number;
}

static void chain_free(struct hak_heap *heap, uint32_t number, bool known) {
    while (number) number = hak_record_free(heap, number, known);
}

static void on_large_taken(struct hak_heap *heap, void *block, size_t bytes) {
    struct hak_watch *watch = hak_watch_of(heap);
    if (!watch || !hak_region_holds(block)) return;
    chores(heap);
    uint64_t rate = hak_sample_rate();
    size_t usable = hak_large_usable(hak_granule_at(hak_granule_of(block)));
    hak_atomic_u32 *number = large_number(block, false);
    if (number && hak_load_relaxed(number)) chain_free(heap, hak_exchange(number, 0), false); /* its free was not seen */
    if (watch->busy || !rate || !large_hit(watch, usable, rate)) return;
    number = large_number(block, true);
    if (number) hak_store_release(number, large_sample(heap, watch, block, bytes, usable, 0));
}

static uint32_t large_lift(void *block) {
    hak_atomic_u32 *number = large_number(block, false);
    return number && hak_load_relaxed(number) ? hak_exchange(number, 0) : 0;
}

static void on_large_freed(struct hak_heap *heap, void *block) {
    uint32_t lifted = large_lift(block);
    if (lifted) chain_free(heap, lifted, true);
    if (hak_heap_is_none(heap)) return;
    chores(heap);
}

/* Each row of the chain covers what the block grew by when it was drawn; of a block that shrank, what is left of it. */
static void on_large_lay(struct hak_heap *heap, uint32_t lifted, void *block, size_t old_bytes, size_t bytes) {
    struct hak_watch *watch = hak_heap_is_none(heap) ? NULL : heap->watch;
    uint64_t rate = hak_sample_rate();
    for (uint32_t at = lifted; at; at = hak_record_next(at)) {
        uint64_t from = hak_record_row(at)->from_bytes;
        hak_record_move(at, block, bytes > from ? bytes - from : 0);
    }
    if (bytes > old_bytes && watch && rate && !watch->busy && large_hit(watch, bytes - old_bytes, rate)) {
        uint32_t number = large_sample(heap, watch, block, bytes - old_bytes, bytes - old_bytes, old_bytes);
        if (number) {
            hak_record_chain(number, lifted);
            lifted = number;
        }
    }
    hak_atomic_u32 *place = lifted ? large_number(block, true) : NULL;
    if (place) hak_store_release(place, lifted);
    else if (lifted) chain_free(heap, lifted, false);
}

/* Sampling ends: frees of large blocks are not seen from here on. */
static void large_forget(void) {
    for (size_t leaf = 0; leaf < LEAVES; leaf++) {
        hak_atomic_u32 *numbers = hak_load_acquire(&leaves[leaf]);
        for (size_t i = 0; numbers && i < (size_t)1 << LEAF_SHIFT; i++)
            if (hak_load_relaxed(&numbers[i])) chain_free((struct hak_heap *)&hak_heap_none, hak_exchange(&numbers[i], 0), false);
    }
}

/* --- on and off --- */

static void hooks_set(bool on) {
    if (on) {
        hak_store_relaxed(&hak_hooks.watched_free, on_free);
        hak_store_relaxed(&hak_hooks.watched_bytes, bytes_of);
        hak_store_relaxed(&hak_hooks.watched_place, place_of);
        hak_store_relaxed(&hak_hooks.watched_site, on_site);
        hak_store_relaxed(&hak_hooks.census, on_census);
        hak_store_relaxed(&hak_hooks.large_lay, on_large_lay);
        hak_store_release(&hak_hooks.large_lift, large_lift);
    }
    hak_store_relaxed(&hak_hooks.large_taken, on ? on_large_taken : NULL);
    hak_store_relaxed(&hak_hooks.large_freed, on ? on_large_freed : NULL);
    hak_store_relaxed(&hak_hooks.kept, on ? on_kept : NULL);
    hak_store_release(&hak_hooks.visit, on ? on_visit : NULL);
}

void hak_sample_want(enum hak_sample_who who, uint64_t rate_bytes, bool stacks) {
    hak_store_relaxed(&wanted[who], rate_bytes << 1 | (rate_bytes && stacks));
    uint64_t least = 0, with_stacks = 0;
    for (unsigned i = 0; i < HAK_SAMPLE_WHO_COUNT; i++) {
        uint64_t one = hak_load_relaxed(&wanted[i]);
        if (one >> 1 && (!least || one >> 1 < least)) least = one >> 1;
        with_stacks |= one & 1;
    }
    if (least && !hak_record_start()) least = 0;
    uint64_t before = hak_load_relaxed(&rate_wanted) >> 1;
    hak_store_relaxed(&rate_wanted, least ? least << 1 | with_stacks : 0);
    hak_store_relaxed(&doubled, 0);
    rate_set();
    hooks_set(least != 0);
    if (before && !least) large_forget();
}
