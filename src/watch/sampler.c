/* sampler.c - which allocations are samples.
 *
 * The allocations of a class in a heap are numbered, and the next sample is a number. Two kinds have numbers of their own:
 * blocks that visits put into the bin, and blocks above 1 KiB that the heap kept (heap/middle.c). Each kind's number is
 * counted beside what the heap counts anyway, in `ahead`: set to as much below zero as there is to go, so that the addition
 * that comes to the sample carries, and only that one comes here. So a visit, and a kept block, cost one addition and a branch
 * never taken, whether anybody samples or not.
 *
 *   a visit's word that has the sample and n blocks before it: the bin keeps n of them, the others go back
 *   the next visit, n being 0: the allocation that is asked for is the sample; the word is the bin's, for those after it
 *
 * Numbers do not move when a word is put back: `ahead` goes back with it. Large blocks are counted in bytes, by heap.
 *
 * A heap follows a new rate among its chores: all its numbers become "the next", and are drawn when they are met.
 * A class that is split by lifetime (heap/pool.h) has two shelves, its own and its pool's: `shelf_index` may be either's.
 *
 * Owns:      the rate in force, the hooks, each heap's struct hak_watch; for large blocks which row is whose.
 * Threads:   each heap's owner; what large blocks name is exchanged, so that one thread ends a row.
 * Measured:  docs/recording.md.
 * Rejected:  making each visit "due" and comparing the count there: 15% of an allocation benchmark's time. One number for a
 *            heap's bytes instead of one for each class: blocks that wait in bins would have to be few.
 */
#include "watch/sampler.h"

#include "heap/secure.h"
#include "heap/hooks.h"
#include "memory/large.h"
#include "memory/outside.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/cfi.h"
#include "watch/draw.h"
#include "watch/guard.h"
#include "watch/published.h"
#include "watch/tray.h"

/* --- the rate --- */

static hak_atomic_u64 wanted[HAK_SAMPLE_WHO_COUNT]; /* rate << 1 | stacks */
static hak_atomic_u64 rate_wanted;                   /* the same, of all */
static hak_atomic_u64 rate_now;                      /* the same, doubled as often as there were too many samples */
static hak_atomic_u32 doubled, recent;               /* how often; samples since the last look */
static hak_atomic_u64 recent_ns;                     /* the threads' time that these took */
static hak_atomic_u32 rows_wanted;                   /* 0: nobody but the guards wants samples, so nothing is noted of them */

uint64_t hak_sample_rate(void) { return hak_load_relaxed(&rate_now) >> 1; }
static bool stacks_wanted(void) { return hak_load_relaxed(&rate_now) & 1; }

static void rate_set(void) {
    uint64_t all = hak_load_relaxed(&rate_wanted), rate = (all >> 1) << hak_load_relaxed(&doubled);
    if (rate && rate < hak_thin_rate()) rate = hak_thin_rate();
    hak_store_relaxed(&rate_now, rate << 1 | (all & 1));
    atomic_fetch_add(&hak_hooks.generation, 1); /* after the rate: who draws reads them the other way round */
    __atomic_store_n(&hakmem_published.rate_bytes, rate, __ATOMIC_RELAXED);
    bool is_on = rate && hak_load_relaxed(&rows_wanted);
    if (is_on) __atomic_store_n(&hakmem_published.recorded_rate_bytes, rate, __ATOMIC_RELAXED);
    __atomic_store_n(&hakmem_published.is_on, is_on, __ATOMIC_RELAXED);
}

void hak_sample_rate_again(void) { rate_set(); }

/* A program that allocates terabytes a second pays for its samples, not for its bytes; and one whose stacks are deep, so that a
 * sample takes ten times as long, for their time: a quarter of a percent of one processor's. The first samples may take what they
 * like, for the unwinder has its tables to find. Why the rate moves depends on what was, never on the draws that are pending, so
 * what they are replaced by is as right. */
enum { DOUBLED_MAX = 12, LOOKS_PER_S = 50, TIME_SHARE = 400, LOOK_NS = 1000000000 / LOOKS_PER_S, FEW = 8 };

static void sample_counted(uint64_t ns) {
    uint64_t most = HAK_OPT(sample_most) / LOOKS_PER_S;
    uint32_t count = hak_add(&recent, 1) + 1;
    if (!hak_load_relaxed(&rows_wanted)) ns = 0; /* guards alone take the time that was asked for */
    uint64_t spent = hak_add(&recent_ns, ns) + ns;
    if (HAK_OPT(sample_most) == 0 || (count <= most && (spent <= LOOK_NS / TIME_SHARE || count <= FEW))) return;
    uint32_t times = hak_load_relaxed(&doubled);
    if (times >= DOUBLED_MAX || !hak_cas(&recent, &count, 0)) return;
    hak_store_relaxed(&recent_ns, 0);
    if (hak_cas(&doubled, &times, times + 1)) rate_set();
}

void hak_sample_tick(uint64_t now_ms) {
    static uint64_t last_ms;
    uint64_t elapsed = now_ms - last_ms, count = hak_exchange(&recent, 0), ns = hak_exchange(&recent_ns, 0);
    uint32_t times = hak_load_relaxed(&doubled);
    last_ms = now_ms;
    bool is_little = count * 4000 < HAK_OPT(sample_most) * elapsed && ns * 4 * TIME_SHARE < elapsed * 1000000;
    if (times && (HAK_OPT(sample_most) == 0 || is_little) && hak_cas(&doubled, &times, times - 1)) rate_set();
}

/* --- a heap's part --- */

static void thread_look(const struct hak_heap *heap, struct hak_watch *watch) {
    uintptr_t pointer = (uintptr_t)__builtin_thread_pointer();
    uint32_t epoch = hak_load_relaxed(&hak_epoch), given = hak_watch_given(heap);
    if (HAK_LIKELY(watch->thread_pointer == pointer && watch->epoch == epoch && watch->given == given)) return;
    bool is_new = watch->thread_pointer != pointer || watch->epoch != epoch;
    watch->given = given;
    watch->thread_pointer = pointer;
    watch->epoch = epoch;
    watch->tid = 0;
    if (is_new) watch->thread = 0;
    watch->bounds = (struct hak_stack_bounds){ 0, 0 };
}

/* The mark of a thread that vanished by a fork, in the middle of a sample, is nobody's; and of a handler that left one by longjmp, after a
 * second: a sample takes some microseconds. */
static bool is_busy(const struct hak_watch *watch) {
    enum { LONG_NS = 1000000000 };
    return HAK_UNLIKELY(watch->busy == hak_load_relaxed(&hak_epoch)) && hak_os_clock_ns() - watch->busy_ns < LONG_NS;
}

static void busy_look(struct hak_heap *heap, void *any) {
    const struct hak_watch *watch = heap->watch;
    if (watch && is_busy(watch)) *(bool *)any = true;
}
bool hak_sample_is_busy(void) {
    bool any = false;
    hak_heap_each(busy_look, &any);
    return any;
}

static void busy_begin(struct hak_watch *watch, uint64_t now_ns) {
    watch->busy_ns = now_ns;
    atomic_signal_fence(memory_order_seq_cst);
    watch->busy = hak_load_relaxed(&hak_epoch);
}

struct hak_watch *hak_watch_of(struct hak_heap *heap) {
    struct hak_watch *watch = heap->watch;
    if (HAK_LIKELY(watch != NULL)) return watch;
    if (hak_heap_is_none(heap)) return NULL;
    struct hak_heap *home = hak_load_relaxed(&heap->home);
    if (HAK_UNLIKELY(home != NULL)) return heap->watch = hak_watch_of(home); /* under the secure level: its thread's */
    watch = hak_os_map(hak_round_up(sizeof *watch, hak_os_page_bytes()));
    if (!watch) return NULL;
    hak_cfi_begin();
    watch->random = (uintptr_t)watch ^ hak_os_ticks() ^ hak_os_clock_ns() << 20 ^ (uint64_t)hak_os_tid() << 40;
    heap->watch = watch;
    return watch;
}

/* `ahead` of who is not to be met; of who is met by the next block. */
#define NEVER (UINT64_C(1) << 63)
#define NEXT (~UINT64_C(0))

/* Blocks that may go before the next sample. */
static uint64_t draw(struct hak_watch *watch, unsigned class_index, uint64_t rate) {
    return hak_draw_distance(&watch->random, hak_classes[class_index].block_bytes, rate) - 1;
}

/* Another rate: what is pending is drawn again when it is met. */
static void follow(struct hak_heap *heap) {
    uint32_t generation = hak_load_acquire(&hak_hooks.generation);
    bool is_programs = hak_load_relaxed(&heap->is_instance) && hak_load_relaxed(&heap->family) != hak_load_relaxed(&hak_secure_family);
    if (HAK_UNLIKELY(is_programs)) { /* not sampled: the block would lie in no slab of its family's */
        heap->follows = generation;
        return;
    }
    heap->follows = generation; /* first: the program may have a clock of its own, which allocates (libfaketime) */
    uint64_t begin_ns = hak_os_clock_ns();
    if (!hak_watch_of(heap)) { /* no memory: asked again at the next chores */
        heap->follows = generation - 1;
        return;
    }
    heap->watch->random ^= hak_os_ticks() ^ begin_ns << 20 ^ (uint64_t)hak_os_tid() << 40; /* not what it was before a fork */
    bool on = hak_sample_rate() != 0;
    for (unsigned i = 1; i < hak_shelf_end(heap); i++) hak_shelf_of(heap, i)->ahead = on ? NEXT : NEVER;
    for (unsigned i = HAK_SMALL_CLASS_MAX + 1; i < HAK_CLASS_COUNT; i++) hak_middle_of(heap, i)->ahead = on ? (uint32_t)NEXT : 0;
    heap->large_ahead = on ? NEXT : NEVER;
    hak_publish_held(begin_ns);
}

/* --- small blocks --- */

/* Is this sample, drawn at `rate`, one of those that are drawn at the guards' rate? */
static bool guard_due(struct hak_watch *watch, size_t bytes, uint64_t rate) {
    uint64_t guard_rate = hak_load_relaxed(&wanted[HAK_SAMPLE_GUARD]) >> 1;
    if (HAK_LIKELY(guard_rate == 0)) return false;
    if (guard_rate <= rate) return true;
    double uniform = (double)(hak_draw_bits(&watch->random) >> 11) * 0x1p-53;
    return uniform * hak_sample_weight(bytes, guard_rate) < hak_sample_weight(bytes, rate);
}

/* Who asked for an alignment asked for a multiple of it (front/aligned.c). */
static void *guard_take(struct hak_heap *heap, struct hak_watch *watch, size_t bytes, size_t multiple, struct hak_stack_here here,
                        hak_atomic_u32 **number) {
    return hak_guard_take(heap, bytes, multiple & -multiple, here, &watch->bounds, &watch->random, number);
}

/* The sample's block; NULL: the ordinary one, `place`, serves. */
static HAK_NOINLINE void *sample_small(size_t bytes, struct hak_heap *heap, unsigned class_index, const void *place,
                                       struct hak_stack_here here) {
    if (heap->from_address) here = (struct hak_stack_here){ (uintptr_t)heap->from_address, heap->from_stack, 0 };
    struct hak_watch *watch = heap->watch;
    hak_atomic_u32 *number;
    uint64_t rate = hak_sample_rate(), begin_ns = hak_os_clock_ns();
    size_t usable = hak_classes[class_index].block_bytes, taken = bytes < usable ? bytes : usable, requested = taken - hak_secure_word_bytes();
    busy_begin(watch, begin_ns);
    thread_look(heap, watch);
    void *guarded = rate && guard_due(watch, usable, rate) ? guard_take(heap, watch, requested, taken, here, &number) : NULL;
    bool is_noted = hak_load_relaxed(&rows_wanted);
    void *block = guarded || !rate || !is_noted ? guarded : hak_tray_take(hak_class_plain(class_index), &number);
    if (block && is_noted) {
        struct hak_sample sample = { .block = block, .place = place, .requested_bytes = requested, .block_bytes = usable,
                                     .rate_bytes = rate, .weight = hak_sample_weight(usable, rate),
                                     .class_index = hak_class_plain(class_index), .is_guarded = guarded != NULL };
        hak_store_release(number, hak_record_alloc(heap, watch, &sample, 0, here, stacks_wanted()));
    } else if (rate && is_noted) {
        __atomic_fetch_add(&hakmem_published.lost_block, 1, __ATOMIC_RELAXED);
    }
    sample_counted(hak_publish_held(begin_ns));
    watch->busy = 0;
    return block;
}

/* The block that was the visit's result goes back to the others of its word. */
static void bin_return(struct hak_bin *bin, unsigned class_index, const void *block) {
    size_t index = (size_t)((const char *)block - bin->base) / hak_classes[class_index].block_bytes;
    __atomic_store_n(&bin->word, bin->word | UINT64_C(1) << index, __ATOMIC_RELEASE);
}

/* `may` of the blocks that the shelf put into the bin, `count` of them still there, may go before the next sample. */
static void shelf_aim(struct hak_heap *heap, unsigned shelf_index, unsigned count, uint64_t may) {
    if (may < count) hak_bin_trim(heap, shelf_index, (unsigned)may);
    hak_shelf_of(heap, shelf_index)->ahead = may < count ? NEXT : NEXT - (may - count);
}

/* It and on_kept() are reached by tail calls from the exported function: return address and frame pointer are the caller's. */
static void *on_visited(size_t bytes, struct hak_heap *heap, unsigned shelf_index, void *block) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_watch *watch = heap->watch;
    struct hak_shelf *shelf = hak_shelf_of(heap, shelf_index);
    if (HAK_UNLIKELY(!watch)) return shelf->ahead = NEVER, block; /* it counted beyond its bits before it follows */
    struct hak_bin *bin = hak_bin_of(heap, shelf_index);
    unsigned count = hak_word_count(bin->word) + 1u; /* `block` among them */
    uint64_t may = count - 1 - shelf->ahead, rate = hak_sample_rate();
    if (HAK_UNLIKELY(watch->drawn[shelf_index] != hak_load_acquire(&hak_hooks.generation))) { /* before the rate */
        watch->drawn[shelf_index] = hak_load_acquire(&hak_hooks.generation);
        rate = hak_sample_rate();
        may = rate ? draw(watch, shelf_index, rate) : 0;
    }
    if (HAK_UNLIKELY(!rate || is_busy(watch) || heap->is_short)) { /* not now; who is busy is asked again */
        shelf->ahead = rate ? NEXT : NEVER;
        return block;
    }
    if (may > 0) {
        shelf_aim(heap, shelf_index, count - 1, may - 1);
        return block;
    }
    void *sampled = sample_small(bytes, heap, shelf_index, block, here);
    if (HAK_LIKELY(sampled != NULL)) bin_return(bin, shelf_index, block);
    shelf_aim(heap, shelf_index, count - (sampled == NULL), draw(watch, shelf_index, rate));
    return sampled ? sampled : block;
}

static void *on_kept(size_t bytes, struct hak_heap *heap, unsigned class_index, void *block) {
    enum { MOST = 1 << 30 };
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_watch *watch = heap->watch;
    struct hak_middle *middle = hak_middle_of(heap, class_index);
    if (HAK_UNLIKELY(!watch)) return middle->ahead = 0, block; /* after 2^32 kept blocks */
    unsigned at = class_index - HAK_SMALL_CLASS_MAX - 1;
    uint64_t may = 0, rate = hak_sample_rate();
    if (HAK_UNLIKELY(watch->kept_drawn[at] != hak_load_acquire(&hak_hooks.generation))) {
        watch->kept_drawn[at] = hak_load_acquire(&hak_hooks.generation);
        rate = hak_sample_rate();
        may = rate ? draw(watch, class_index, rate) : 0;
    }
    if (HAK_UNLIKELY(!rate || is_busy(watch) || heap->is_short)) {
        middle->ahead = rate ? (uint32_t)NEXT : 0;
        return block;
    }
    void *sampled = NULL;
    if (may == 0) {
        sampled = sample_small(bytes, heap, class_index, block, here);
        if (HAK_LIKELY(sampled != NULL)) hak_middle_take_back(heap, class_index, block);
        may = draw(watch, class_index, rate) + 1; /* `block` is not among them, as below it is */
    }
    if (may > MOST) { /* drawn anew from there: the draws have no memory */
        may = MOST;
        watch->kept_drawn[at] = 0;
    }
    middle->ahead = (uint32_t)-may;
    return sampled ? sampled : block;
}

/* --- small blocks: free and questions --- */

/* 0: none, or thin.c has it, and ends the row when it finds the number gone. */
static uint32_t number_take(hak_atomic_u32 *place) {
    uint32_t number = hak_load_relaxed(place) ? hak_exchange(place, 0) : 0;
    return number & HAK_NUMBER_MARK ? 0 : number;
}

static HAK_NOINLINE bool free_guarded(struct hak_heap *heap, void *block, struct hak_stack_here here) {
    struct hak_stack_bounds bounds = { 0, 0 };
    hak_atomic_u32 *place = hak_guard_number(block);
    if (!place) return false;
    uint32_t number = hak_exchange(place, 0);
    if (!hak_guard_free(heap, block, here, &bounds)) return false;
    if (number) hak_record_free(heap, number, true);
    return true;
}

static bool on_free(struct hak_heap *heap, void *block) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_tray_place place;
    if (HAK_UNLIKELY(hak_guard_holds(block))) return free_guarded(heap, block, here);
    if (!hak_tray_find(block, &place) || place.start != block || place.is_free) return false;
    uint32_t number = number_take(place.number);
    if (number) hak_record_free(heap, number, true);
    return hak_tray_give(block);
}

static size_t bytes_of(const void *block) {
    struct hak_tray_place place;
    if (hak_guard_holds(block)) return hak_guard_usable(block);
    return hak_tray_find(block, &place) && place.start == block && !place.is_free ? place.bytes : 0;
}

static bool place_of(const void *address, const char **start, size_t *bytes, bool *is_free) {
    struct hak_tray_place place;
    const struct hak_guard_row *row = hak_guard_near(address);
    if (row) {
        *start = (const char *)(uintptr_t)row->block;
        *bytes = (size_t)row->requested_bytes;
        *is_free = row->state == HAK_GUARD_FREED;
        return address == *start || (uintptr_t)address - (uintptr_t)*start < *bytes;
    }
    if (!hak_tray_find(address, &place)) return false;
    *start = place.start;
    *bytes = place.bytes;
    *is_free = place.is_free;
    return true;
}

static void on_site(void *block, uintptr_t site) {
    struct hak_tray_place place;
    hak_atomic_u32 *numbered = hak_tray_find(block, &place) ? place.number : hak_guard_number(block);
    uint32_t number = numbered ? hak_load_relaxed(numbered) & ~HAK_NUMBER_MARK : 0;
    if (number) __atomic_store_n(&hak_stack_row_at(hak_record_row(number)->stack)->explicit_site, site, __ATOMIC_RELAXED);
}

static void on_census(struct hak_census *census) {
    hak_tray_census(census->live, census->handed);
    hak_guard_census(census);
}

static int on_walk(const struct hak_walk *walk) {
    int result = hak_tray_walk(walk);
    return result ? result : hak_guard_walk(walk);
}

static void on_misused(const void *address, bool frees) {
    struct hak_stack_here here = HAK_STACK_HERE();
    if (hak_guard_holds(address)) hak_guard_misused(address, frees, here);
}

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

/* Bytes of large blocks to the next sample are exponential, and rounded up: that changes no answer. */
static void large_aim(struct hak_heap *heap, struct hak_watch *watch, uint64_t rate) {
    double bytes = hak_draw_exponential(&watch->random) * (double)rate;
    heap->large_ahead = rate ? -(uint64_t)(bytes < 0x1p60 ? bytes + 1 : 0x1p60) : NEVER;
}

static bool large_passes(struct hak_heap *heap, size_t bytes) { return (heap->large_ahead += bytes) < bytes; }

/* `bytes` were counted, and passed the number; is it a sample? The next is drawn: the overshoot is not carried. */
static bool large_hit(struct hak_heap *heap, struct hak_watch *watch, size_t bytes) {
    uint32_t now = hak_load_acquire(&hak_hooks.generation);
    bool is_drawn = watch->large_drawn == now;
    uint64_t rate = hak_sample_rate();
    if (HAK_UNLIKELY(!is_drawn)) {
        watch->large_drawn = now;
        large_aim(heap, watch, rate);
        if (!large_passes(heap, bytes)) return false;
    }
    large_aim(heap, watch, rate);
    return rate && !is_busy(watch);
}

static HAK_NOINLINE uint32_t large_sample(struct hak_heap *heap, struct hak_watch *watch, void *block, size_t requested,
                                          size_t drawn, size_t from, bool is_guarded) {
    struct hak_stack_here here = HAK_STACK_HERE();
    uint64_t rate = hak_sample_rate(), begin_ns = hak_os_clock_ns();
    struct hak_sample sample = { .block = block, .place = block, .requested_bytes = requested, .block_bytes = drawn,
                                 .rate_bytes = rate, .weight = hak_sample_weight(drawn, rate), .is_guarded = is_guarded };
    busy_begin(watch, begin_ns);
    thread_look(heap, watch);
    /* asked again: from here on the end of a recording, and the next one's beginning, see that somebody is at it */
    uint32_t number = hak_load_relaxed(&rows_wanted) ? hak_record_alloc(heap, watch, &sample, from, here, stacks_wanted()) : 0;
    sample_counted(hak_publish_held(begin_ns));
    watch->busy = 0;
    return number;
}

/* Before the block is made: is it a sample, and is that guarded? */
static void *on_large_apart(struct hak_heap *heap, size_t bytes, size_t align, bool *zeroed) {
    struct hak_stack_here here = HAK_STACK_HERE();
    struct hak_watch *watch = heap->watch;
    uint64_t rate = hak_sample_rate();
    hak_atomic_u32 *number;
    if (HAK_UNLIKELY(!watch)) return heap->large_ahead = NEVER, NULL;
    watch->large_is_sample = large_hit(heap, watch, bytes) && rate;
    if (HAK_LIKELY(!watch->large_is_sample) || !guard_due(watch, bytes, rate)) return NULL;
    thread_look(heap, watch);
    void *block = hak_guard_take(heap, bytes, align, here, &watch->bounds, &watch->random, &number);
    if (!block) return NULL;
    if (hak_load_relaxed(&rows_wanted)) hak_store_release(number, large_sample(heap, watch, block, bytes, bytes, 0, true));
    *zeroed = true;
    return block;
}

static void chain_free(struct hak_heap *heap, uint32_t number, bool known) {
    while (number) number = hak_record_free(heap, number, known);
}

/* The place of its number, of a block in the window or outside it; the block's end is told. */
static hak_atomic_u32 *large_place(void *block) {
    hak_atomic_u32 *number = hak_region_holds(block) ? large_number(block, true) : hak_outside_number(block);
    if (number && hak_region_holds(block)) hak_large_sampled(hak_granule_at(hak_granule_of(block)));
    return number;
}

static void on_large_taken(struct hak_heap *heap, void *block, size_t bytes) {
    struct hak_watch *watch = heap->watch;
    if (HAK_UNLIKELY(!watch)) return;
    bool is_sample = watch->large_is_sample;
    watch->large_is_sample = false;
    if (!is_sample || !hak_load_relaxed(&rows_wanted)) return;
    hak_atomic_u32 *number = large_place(block);
    if (!number) return;
    uint32_t stale = number_take(number);
    if (stale) chain_free(heap, stale, false); /* its end was not seen */
    hak_store_release(number, large_sample(heap, watch, block, bytes, bytes, 0, false));
}

static uint32_t large_lift(void *block) {
    hak_atomic_u32 *number = large_number(block, false);
    return number ? number_take(number) : 0;
}

static void on_large_end(void *block) {
    uint32_t lifted = large_lift(block);
    if (lifted) chain_free(hak_self, lifted, true);
}
static void on_outside_end(uint32_t number) {
    if (!(number & HAK_NUMBER_MARK)) chain_free(hak_self, number, true);
}
void hak_sample_end(uint32_t number) { chain_free(hak_self, number, true); }

hak_atomic_u32 *hak_sample_number(void *block) {
    struct hak_tray_place place;
    if (!hak_region_holds(block)) return hak_outside_number(block);
    if (hak_tray_find(block, &place)) return place.number;
    return large_number(block, false);
}

/* Each row of the chain covers what the block grew by when it was drawn; of a block that shrank, what is left of it. */
static void on_large_lay(struct hak_heap *heap, uint32_t lifted, void *block, size_t old_bytes, size_t bytes) {
    struct hak_watch *watch = hak_heap_is_none(heap) ? NULL : heap->watch;
    for (uint32_t at = lifted; at; at = hak_record_next(at)) {
        uint64_t from = hak_record_row(at)->from_bytes;
        hak_record_move(at, block, bytes > from ? bytes - from : 0);
    }
    if (bytes > old_bytes && watch && large_passes(heap, bytes - old_bytes) &&
        large_hit(heap, watch, bytes - old_bytes) && hak_load_relaxed(&rows_wanted)) {
        uint32_t number = large_sample(heap, watch, block, bytes - old_bytes, bytes - old_bytes, old_bytes, false);
        if (number) {
            hak_record_chain(number, lifted);
            lifted = number;
        }
    }
    hak_atomic_u32 *place = lifted ? large_place(block) : NULL;
    if (place) hak_store_release(place, lifted);
    else if (lifted) chain_free(heap, lifted, false);
}

/* --- on and off --- */

/* Once: what is told stays true after sampling has ended, and heaps find that out among their chores. */
static void hooks_set(void) {
    hak_store_relaxed(&hak_hooks.watched_free, on_free);
    hak_store_relaxed(&hak_hooks.watched_bytes, bytes_of);
    hak_store_relaxed(&hak_hooks.watched_place, place_of);
    hak_store_relaxed(&hak_hooks.watched_site, on_site);
    hak_store_relaxed(&hak_hooks.watched_misused, on_misused);
    hak_store_relaxed(&hak_hooks.census, on_census);
    hak_store_relaxed(&hak_hooks.walk, on_walk);
    hak_store_relaxed(&hak_hooks.large_lay, on_large_lay);
    hak_store_release(&hak_hooks.large_lift, large_lift);
    hak_store_relaxed(&hak_hooks.large_apart, on_large_apart);
    hak_store_relaxed(&hak_hooks.large_taken, on_large_taken);
    __atomic_store_n(&hak_large_on_end, on_large_end, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_outside_on_end, on_outside_end, __ATOMIC_RELAXED);
    hak_store_relaxed(&hak_hooks.kept, on_kept);
    hak_store_relaxed(&hak_hooks.visited, on_visited);
    hak_store_relaxed(&hak_hooks.follow, follow); /* before rate_set() */
}

void hak_sample_want(enum hak_sample_who who, uint64_t rate_bytes, bool stacks) {
    hak_store_relaxed(&wanted[who], rate_bytes << 1 | (rate_bytes && stacks));
    uint64_t least = 0, with_stacks = 0;
    for (unsigned i = 0; i < HAK_SAMPLE_WHO_COUNT; i++) {
        uint64_t one = hak_load_relaxed(&wanted[i]);
        if (one >> 1 && (!least || one >> 1 < least)) least = one >> 1;
        with_stacks |= one & 1;
    }
    bool others = false;
    for (unsigned i = 0; i < HAK_SAMPLE_WHO_COUNT; i++) others |= i != HAK_SAMPLE_GUARD && hak_load_relaxed(&wanted[i]);
    if (others && !hak_record_start()) {
        others = false;
        least = hak_load_relaxed(&wanted[HAK_SAMPLE_GUARD]) >> 1; /* which needs no tables */
    }
    hak_store_relaxed(&rows_wanted, others);
    uint64_t before = hak_load_relaxed(&rate_wanted) >> 1;
    hak_store_relaxed(&rate_wanted, least ? least << 1 | with_stacks : 0);
    hak_store_relaxed(&doubled, 0);
    if (least != before) hak_thin_clear();
    if (least) hooks_set();
    if (HAK_HOOK(follow)) rate_set(); /* else nobody ever sampled */
}
