/* malloc.c - malloc, free, calloc and reallocarray, and where their fast paths leave to.
 *
 * Owns:      nothing.
 * Threads:   any.
 * Errors:    ENOMEM with NULL; misuse ends the program (front/misuse.c). errno is kept otherwise: the system
 *            calls below never touch it.
 */
#include "front/front.h"

#include "heap/borrow.h"
#include "heap/kept.h"
#include "heap/middle.h"
#include "heap/pool.h"
#include "heap/secure.h"
#include "memory/outside.h"
#include "memory/purge.h"
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

HAK_STATIC(sizeof(struct hak_fast_bin) == sizeof(struct hak_bin) && offsetof(struct hak_heap, bin) == 0);
HAK_STATIC((int)HAK_FAST_BINS == (int)HAK_SMALL_CLASS_MAX + 1 && HAK_FAST_STEPS * 16 == HAK_SMALL_BYTES_MAX);
HAK_STATIC(offsetof(struct hak_fast_heap, class_bytes) == offsetof(struct hak_heap, class_bytes));
HAK_STATIC(sizeof(struct hak_fast_record) == sizeof(struct hak_granule));
HAK_STATIC(offsetof(struct hak_fast_record, reciprocal) == offsetof(struct hak_granule, reciprocal));
HAK_STATIC(sizeof(struct hak_fast_row) == sizeof(struct hak_row));
HAK_STATIC(offsetof(struct hak_fast_row, countdown) == offsetof(struct hak_row, countdown) &&
           offsetof(struct hak_fast_row, step) == offsetof(struct hak_row, step));

/* --- malloc --- */

HAK_COLD void *hak_front_too_much(void) {
    errno = ENOMEM;
    return NULL;
}

/* Nothing that is given back makes room for it. A limit is not asked for: a sandbox may kill for that. The window is less than twice of it. */
static bool is_too_much(size_t bytes) { return bytes > hak_region_bytes(); }

/* No heap for a thread that has none: once more after giving back all that is free. NULL, too, if nobody will be told of its end: it borrows. */
static HAK_COLD struct hak_heap *heap_after_collect(void) {
    if (hak_heap_is_gone(hak_self) || !hak_start()) return NULL;
    hak_heap_collect(hak_self);
    return hak_front_heap();
}

static HAK_COLD struct hak_heap *borrow(void) {
    struct hak_heap *heap = hak_heap_borrow();
    if (HAK_LIKELY(heap != NULL)) return heap;
    hak_heap_collect(hak_self);
    return hak_heap_borrow();
}

/* Neither of them gave one. */
static HAK_COLD struct hak_heap *heap_after_all(size_t bytes, struct hak_heap *(*get)(void)) {
    struct hak_heap *heap = NULL;
    for (unsigned tries = 0; !heap && hak_shortage_ask(bytes, tries); tries++) heap = get();
    if (!heap) hak_shortage_end();
    return heap;
}

void *hak_front_large_found(struct hak_heap *heap, size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed) {
    size_t count = ((bytes - 1) >> HAK_GRANULE_SHIFT) + 1;
    struct hak_rush *rush = &heap->rush;
    if (HAK_LIKELY(count <= HAK_KEPT_SIZES) && HAK_LIKELY(align <= HAK_GRANULE_BYTES)) hak_kept_missed(heap);
    if (HAK_LIKELY(!hak_rush_is_on(rush))) hak_kept_make_room(heap, count);
    hak_big_name site = hak_big_site(address, (uint32_t)((heap->stack_top - stack) >> 3), bytes, hak_rush_takes_part(rush, false));
    size_t guards = hak_secure_guard_granules() << HAK_GRANULE_SHIFT;
    size_t wanted = HAK_UNLIKELY(hak_secure_is_on()) ? hak_front_good(bytes) + guards : hak_front_span_bytes(bytes, align);
    void *block = hak_large_take(rush, wanted, align, site, zeroed);
    for (unsigned tries = 0; HAK_UNLIKELY(block == NULL); tries++) {
        bool is_short = !is_too_much(bytes);
        if (HAK_LIKELY(is_short)) {
            hak_heap_collect(heap);
            block = hak_large_take(rush, wanted, align, site, zeroed);
            if (block) break;
        }
        *zeroed = true;
        block = hak_outside_take(bytes, align);
        if (block) return block;
        if (!is_short) return hak_front_too_much();
        if (!hak_shortage_ask(bytes, tries)) return hak_shortage_end();
    }
    if (HAK_UNLIKELY(hak_secure_is_on())) hak_secure_large_close(hak_granule_at(hak_granule_of(block)), bytes, *zeroed);
    else if (count <= HAK_KEPT_SIZES) hak_large_own(hak_granule_at(hak_granule_of(block)), hak_kept_name(heap));
    return block;
}

/* The sampler wants this one; or nobody samples, and what was asked for since the start goes beyond 64 bits. */
static HAK_NOINLINE void *large_sampled(struct hak_heap *heap, size_t bytes, size_t align, const void *address, uintptr_t stack,
                                        bool *zeroed) {
    void *(*on_apart)(struct hak_heap *, size_t, size_t, bool *) = HAK_HOOK(large_apart);
    if (HAK_UNLIKELY(on_apart == NULL)) return hak_front_large_found(heap, bytes, align, address, stack, zeroed);
    void *block = on_apart(heap, bytes, align, zeroed);
    if (block) return block;
    block = hak_front_large_found(heap, bytes, align, address, stack, zeroed);
    if (block) HAK_HOOK(large_taken)(heap, block, bytes);
    return block;
}

/* Of a thread whose heap died, or that can have none. */
static HAK_COLD void *large_borrowing(size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed) {
    struct hak_heap *heap = borrow();
    if (!heap && !(heap = heap_after_all(bytes, borrow))) return NULL;
    void *block = hak_front_large(bytes, align, address, stack, zeroed);
    hak_heap_give_back(heap);
    return block;
}

static HAK_COLD void *large_without_heap(size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed) {
    if (heap_after_collect()) return hak_front_large(bytes, align, address, stack, zeroed);
    if (hak_heap_is_gone(hak_self)) return large_borrowing(bytes, align, address, stack, zeroed);
    return heap_after_all(bytes, heap_after_collect) ? hak_front_large(bytes, align, address, stack, zeroed) : NULL;
}

void *hak_front_large(size_t bytes, size_t align, const void *address, uintptr_t stack, bool *zeroed) {
    if (HAK_UNLIKELY(bytes > PTRDIFF_MAX)) return hak_front_too_much();
    if (HAK_UNLIKELY(hak_heap_is_gone(hak_self))) return large_borrowing(bytes, align, address, stack, zeroed);
    struct hak_heap *heap = hak_front_heap();
    if (HAK_UNLIKELY(!heap)) return large_without_heap(bytes, align, address, stack, zeroed);
    HAK_COUNT(&heap->counters, large_alloc, 1);
    if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) hak_visit_chores_due(heap);
    void *none = NULL;
    if (HAK_UNLIKELY(hak_owner_passes(&heap->large_ahead, bytes, &none)))
        return large_sampled(heap, bytes, align, address, stack, zeroed);
    size_t count = ((bytes - 1) >> HAK_GRANULE_SHIFT) + 1;
    if (count <= HAK_KEPT_SIZES && align <= HAK_GRANULE_BYTES) {
        *zeroed = false;
        void *kept = hak_kept_take(heap, count, hak_front_span_bytes(bytes, align));
        if (kept) return kept;
    }
    return hak_front_large_found(heap, bytes, align, address, stack, zeroed);
}

/* What the thread's own heap has for the instance. */
static HAK_COLD void wait_no_more(struct hak_heap *home) {
    if (!home) return;
    hak_secure_empty(home);
    hak_batch_flush(home);
}

void *hak_front_short(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    void *block = NULL;
    if (!heap->is_short) {
        if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance)) && heap->is_refused) return hak_front_short_of_family(bytes, heap, class_index);
        const void *address = heap->from_address;
        uintptr_t stack = heap->from_stack;
        int saved = errno;
        for (unsigned tries = 0; !block; tries++) {
            if (tries > 0 && !hak_shortage_ask(bytes, tries - 1)) return hak_shortage_end();
            heap->from_address = address; /* what the callback allocated had its own */
            heap->from_stack = stack;
            heap->is_short = 1;
            if (HAK_UNLIKELY(hak_secure_is_on())) wait_no_more(hak_load_relaxed(&heap->home));
            hak_heap_collect(heap);
            hak_event_relist(heap);
            block = hak_bin_of(heap, class_index)->word ? NULL : hak_visit_any(bytes, heap, class_index);
            heap->is_short = 0;
        }
        errno = saved; /* tries that failed said ENOMEM */
        return block;
    }
    errno = ENOMEM; /* a signal handler's, in the middle of it */
    return NULL;
}

/* Of a thread whose heap died, or that can have none. A signal handler may have filled the bin. */
static HAK_COLD void *malloc_borrowing(size_t bytes, const void *address, uintptr_t stack) {
    struct hak_heap *heap = borrow();
    if (!heap && !(heap = heap_after_all(bytes, borrow))) return NULL;
    void *block = hak_malloc_from(bytes, address, stack);
    hak_heap_give_back(heap);
    return block;
}

static HAK_COLD void *malloc_without_heap(size_t bytes, const void *address, uintptr_t stack) {
    if (heap_after_collect()) return hak_malloc_from(bytes, address, stack);
    if (hak_heap_is_gone(hak_self)) return malloc_borrowing(bytes, address, stack);
    return heap_after_all(bytes, heap_after_collect) ? hak_malloc_from(bytes, address, stack) : NULL;
}

static HAK_NOINLINE void *malloc_first(size_t bytes) { /* of a thread; no class is split in its heap yet, or little is lost */
    if (HAK_UNLIKELY(hak_heap_is_gone(hak_self))) return malloc_borrowing(bytes, HAK_FRONT_CALLER());
    struct hak_heap *heap = hak_front_heap();
    if (HAK_UNLIKELY(!heap)) return malloc_without_heap(bytes, HAK_FRONT_CALLER());
    return hak_malloc_inline(bytes, hak_malloc_slow); /* the thread key's own allocation may have filled the bin */
}

static HAK_NOINLINE void *malloc_large_further(size_t bytes, const void *address, uintptr_t stack) {
    bool zeroed;
    return hak_front_large(bytes, 1, address, stack, &zeroed);
}

static HAK_COLD void *malloc_large_stolen(size_t bytes, const void *address, uintptr_t stack) {
    hak_kept_stolen_from(hak_self);
    return malloc_large_further(bytes, address, stack);
}

static HAK_NOINLINE void *malloc_large_none(struct hak_heap *heap, size_t bytes, const void *address, uintptr_t stack) {
    hak_kept_leave(heap);
    return malloc_large_further(bytes, address, stack);
}

/* No chores, no sample, and a block of this size was freed before. hak_heap_none's chores always wait. All that it calls are tail
 * calls, so that it saves no register. */
static HAK_NOINLINE void *malloc_large_from(size_t bytes, const void *address, uintptr_t stack) {
    struct hak_heap *heap = hak_self;
    size_t count = ((bytes - 1) >> HAK_GRANULE_SHIFT) + 1;
    uint64_t ahead = heap->large_ahead + bytes;
    bool is_sample = ahead < bytes; /* as hak_front_large() finds it */
    if (HAK_UNLIKELY(count > HAK_KEPT_SIZES) || HAK_UNLIKELY(heap->clock_in <= HAK_VISIT_CLOCK) || HAK_UNLIKELY(is_sample))
        return malloc_large_further(bytes, address, stack);
    if (HAK_UNLIKELY(!hak_kept_begin(heap))) return malloc_large_stolen(bytes, address, stack);
    struct hak_granule *record = hak_kept_pop_near(&heap->kept, &count);
    if (HAK_UNLIKELY(record == NULL)) return malloc_large_none(heap, bytes, address, stack);
    heap->clock_in -= HAK_KEPT_CLOCK;
    heap->large_ahead = ahead;
    HAK_COUNT(&heap->counters, large_alloc, 1);
    return hak_kept_taken(heap, record, count, bytes);
}
static HAK_NOINLINE void *malloc_large(size_t bytes) { return malloc_large_from(bytes, HAK_FRONT_CALLER()); }

HAK_INLINE void *malloc_bin(size_t bytes, struct hak_heap *heap, struct hak_bin *bin, unsigned class_index, const void *address, uintptr_t stack) {
    uint64_t word = bin->word;
    if (HAK_UNLIKELY(word == 0)) return hak_pool_visit(bytes, heap, bin, address, stack);
    bin->word = word & (word - 1);
    return bin->base + hak_bit_first(word) * 16 * class_index;
}

static HAK_NOINLINE void *malloc_long(size_t bytes, struct hak_heap *heap, struct hak_pool *pool, const void *address, uintptr_t stack) {
    return malloc_bin(bytes, heap, &pool->bin[1], hak_class_small(bytes), address, stack);
}

/* A block of a split class; not of 0 bytes. */
HAK_INLINE void *malloc_split(size_t bytes, struct hak_heap *heap, unsigned class_index, const void *address, uintptr_t stack) {
    struct hak_pool *pool = hak_pool_at(heap, class_index);
    if (HAK_UNLIKELY(hak_pool_is_long(heap, pool, address, stack))) return malloc_long(bytes, heap, pool, address, stack);
    return malloc_bin(bytes, heap, &pool->bin[0], class_index, address, stack);
}

static HAK_NOINLINE void *malloc_middle_sample(size_t bytes, struct hak_heap *heap, void *block) {
    void *(*on_kept)(size_t, struct hak_heap *, unsigned, void *) = HAK_HOOK(kept);
    /* the class is the block's, whatever serves the size by now */
    return on_kept ? on_kept(bytes, heap, hak_slab_of(hak_granule_at(hak_granule_of(block)))->class_index, block) : block; /* nobody: 2^32 were taken */
}

HAK_INLINE void *malloc_middle(size_t bytes, struct hak_heap *heap, struct hak_middle *middle, unsigned count) {
    bool is_sample;
    void *block = hak_middle_take(heap, middle, count, &is_sample);
    return HAK_LIKELY(!is_sample) ? block : malloc_middle_sample(bytes, heap, block);
}

/* There is mail: strangers may have freed the block, which its owner had freed before. */
static HAK_NOINLINE void *malloc_middle_looked(size_t bytes, struct hak_heap *heap, struct hak_middle *middle) {
    unsigned count = hak_middle_count(middle);
    hak_middle_look_last(middle, count);
    return malloc_middle(bytes, heap, middle, count);
}

/* A block of its own: of the smallest class. */
static HAK_NOINLINE void *malloc_nothing(void) { return hak_malloc_inline(1, hak_malloc_slow); }

/* The first of its size, as far as the heap knows. */
static HAK_NOINLINE void *malloc_above_first(size_t bytes, struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_heap_is_none(heap))) return malloc_first(bytes);
    heap->middle_at[(bytes - 1) / 128] = (uint8_t)(hak_heap_middle_class(heap, bytes) - HAK_SMALL_CLASS_MAX);
    return hak_malloc_above(bytes, heap);
}

/* The class has nothing, and may be none of the size's own. */
static HAK_NOINLINE void *malloc_served(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    if (HAK_LIKELY(hak_borrow_goes_on(bytes, heap, class_index))) return hak_visit(bytes, heap, class_index);
    return hak_malloc_own(bytes); /* a bin of its own may have blocks */
}

/* Its bin was not looked at yet. */
HAK_NOINLINE void *hak_malloc_above(size_t bytes, struct hak_heap *heap) {
    if (HAK_UNLIKELY(bytes - 1 >= HAK_SLAB_BLOCK_BYTES_MAX)) return bytes ? malloc_large(bytes) : malloc_nothing();
    if (bytes <= HAK_SMALL_BYTES_MAX) __builtin_unreachable();
    struct hak_middle *middle = hak_middle_for(heap, bytes);
    unsigned count = hak_middle_count(middle);
    if (HAK_LIKELY(count != 0)) {
        if (HAK_UNLIKELY(hak_heap_has_mail(heap))) return malloc_middle_looked(bytes, heap, middle);
        return malloc_middle(bytes, heap, middle, count);
    }
    unsigned class_index = hak_middle_class(heap, middle); /* not before: the usual way has no use for it */
    if (HAK_UNLIKELY(class_index == HAK_SMALL_CLASS_MAX)) return malloc_above_first(bytes, heap); /* middle_none */
    middle->state = 0;
    struct hak_bin *bin = hak_bin_at(heap, class_index);
    uint64_t word = bin->word;
    if (HAK_LIKELY(word != 0)) {
        bin->word = word & (word - 1);
        return bin->base + hak_word_first(word) * (size_t)hak_classes[class_index].block_bytes;
    }
    if (HAK_UNLIKELY(hak_borrow_serves_middle(heap))) return malloc_served(bytes, heap, class_index);
    return hak_visit(bytes, heap, class_index);
}

/* Of a heap that is none all classes are split, and its class of 0 bytes, too. */
HAK_NOINLINE void *hak_malloc_empty(size_t bytes, struct hak_heap *heap, size_t class_bytes) {
    unsigned class_index = (unsigned)class_bytes / 16;
    if (HAK_UNLIKELY(class_index != hak_class_small(bytes)) && class_index != 0) return malloc_served(bytes, heap, class_index);
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->split) >> ((class_index - 1) & 63) & 1)) {
        if (HAK_UNLIKELY(hak_heap_is_none(heap))) return malloc_first(bytes);
        return malloc_split(bytes, heap, class_index, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    }
    return hak_visit(bytes, heap, class_index);
}

HAK_NOINLINE void *hak_malloc_slow(size_t bytes) {
    struct hak_heap *heap = hak_self;
    if (bytes - 1 >= HAK_SMALL_BYTES_MAX) return hak_malloc_above(bytes, heap);
    return hak_malloc_empty(bytes, heap, 16 * hak_class_small(bytes));
}

static HAK_COLD void *middle_sample_from(size_t bytes, void *block, const void *address, uintptr_t stack) {
    struct hak_heap *heap = hak_self;
    heap->from_address = address;
    heap->from_stack = stack;
    block = malloc_middle_sample(bytes, heap, block);
    heap->from_address = NULL;
    return block;
}

static HAK_NOINLINE void *slow_from(size_t bytes, const void *address, uintptr_t stack) {
    struct hak_heap *heap = hak_self;
    unsigned class_index = bytes ? hak_class_small(bytes) : 1;
    if (HAK_UNLIKELY(hak_heap_is_gone(heap))) return malloc_borrowing(bytes, address, stack);
    if (HAK_UNLIKELY(hak_heap_is_none(heap))) return hak_malloc_slow(bytes);
    if (bytes <= HAK_SMALL_BYTES_MAX && HAK_UNLIKELY(hak_heap_is_split(heap, class_index)))
        return malloc_split(bytes ? bytes : 1, heap, class_index, address, stack);
    heap->from_address = address;
    heap->from_stack = stack;
    void *block = hak_malloc_slow(bytes);
    heap->from_address = NULL;
    return block;
}

/* As hak_malloc_above(), which leaves by tail calls. */
static HAK_NOINLINE void *above_from(size_t bytes, const void *address, uintptr_t stack) {
    struct hak_heap *heap = hak_self;
    if (HAK_UNLIKELY(bytes > HAK_SLAB_BLOCK_BYTES_MAX)) return malloc_large_from(bytes, address, stack);
    struct hak_middle *middle = hak_middle_for(heap, bytes);
    unsigned count = hak_middle_count(middle);
    if (HAK_UNLIKELY(count == 0) || HAK_UNLIKELY(hak_heap_has_mail(heap))) return slow_from(bytes, address, stack);
    bool is_sample;
    void *block = hak_middle_take(heap, middle, count, &is_sample);
    return HAK_LIKELY(!is_sample) ? block : middle_sample_from(bytes, block, address, stack);
}

/* For those that do not leave by a tail call: who asked is said, not found on the stack. */
HAK_NOINLINE void *hak_malloc_slow_from(size_t bytes, const void *address, uintptr_t stack) {
    return HAK_UNLIKELY(bytes > HAK_SMALL_BYTES_MAX) ? above_from(bytes, address, stack) : slow_from(bytes, address, stack);
}

/* --- aligned blocks of a power of two --- */

static HAK_COLD void *power_without_heap(size_t bytes, const void *address, uintptr_t stack) {
    if (HAK_UNLIKELY(hak_heap_is_gone(hak_self))) {
        struct hak_heap *heap = borrow();
        if (!heap && !(heap = heap_after_all(bytes, borrow))) return NULL;
        void *block = hak_front_power(bytes, address, stack);
        hak_heap_give_back(heap);
        return block;
    }
    if (hak_front_heap() || heap_after_collect()) /* the start had failed before, and now the secure level is on */
        return HAK_UNLIKELY(hak_secure_is_on()) ? hak_front_aligned(bytes, bytes) : hak_front_power(bytes, address, stack);
    if (hak_heap_is_gone(hak_self)) return power_without_heap(bytes, address, stack);
    return heap_after_all(bytes, heap_after_collect) ? hak_front_power(bytes, address, stack) : NULL;
}

HAK_NOINLINE void *hak_front_power(size_t bytes, const void *address, uintptr_t stack) {
    struct hak_heap *heap = hak_self;
    unsigned class_index = hak_class_power(bytes);
    if (HAK_UNLIKELY(hak_heap_is_none(heap))) return power_without_heap(bytes, address, stack);
    struct hak_middle *middle = hak_middle_of(heap, class_index);
    unsigned count = hak_middle_count(middle);
    if (HAK_LIKELY(count != 0)) {
        if (HAK_UNLIKELY(hak_heap_has_mail(heap))) return malloc_middle_looked(bytes, heap, middle);
        return malloc_middle(bytes, heap, middle, count);
    }
    middle->state = 0;
    struct hak_bin *bin = hak_bin_at(heap, class_index);
    uint64_t word = bin->word;
    if (HAK_LIKELY(word != 0)) {
        bin->word = word & (word - 1);
        return bin->base + (size_t)hak_word_first(word) * bytes;
    }
    heap->from_address = address;
    heap->from_stack = stack;
    void *block = hak_visit(bytes, heap, class_index);
    heap->from_address = NULL;
    return block;
}

/* On a line of their own: where they lie in it moved a benchmark by 5% with every change before them. */
HAK_EXPORT HAK_ALIGNED(HAK_LINE) void *malloc(size_t bytes) { return hak_malloc_inline(bytes, NULL); }
__attribute__((visibility("hidden"), used, alias("malloc"), copy(malloc))) void *hak_malloc_own(size_t bytes);

/* --- free --- */

/* The block was ended. */
static HAK_NOINLINE void large_ended(struct hak_heap *heap, struct hak_granule *record) {
    if (HAK_UNLIKELY(hak_heap_is_none(heap))) {
        hak_large_finish(NULL, record);
    } else if (!hak_kept_give(heap, record)) {
        hak_large_finish(&heap->rush, record);
        hak_heap_freed(heap);
    }
}

static HAK_NOINLINE void free_large_further(struct hak_granule *record, void *block) {
    struct hak_heap *heap = hak_self;
    if (HAK_UNLIKELY(record->start != block)) hak_misuse("free", block);
    if (HAK_LIKELY(!hak_heap_is_none(heap))) {
        HAK_COUNT(&heap->counters, free_large, 1);
        if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) hak_visit_chores_due(heap);
    }
    if (HAK_UNLIKELY(!hak_large_end(record))) hak_misuse("free", block);
    if (HAK_UNLIKELY((hak_large_facts(record) & HAK_LARGE_FAMILY) != 0)) hak_family_large_ended(record);
    if (HAK_UNLIKELY(hak_secure_is_on())) hak_secure_large_ended(record);
    else large_ended(heap, record);
}

static HAK_COLD void free_large_stolen(struct hak_heap *heap, struct hak_granule *record) {
    hak_kept_stolen_from(heap);
    large_ended(heap, record);
}

/* Its heap's own, no chores: nothing that other threads write is touched (heap/kept.h). Tail calls only, as in malloc_large(). */
static HAK_NOINLINE void free_large(struct hak_granule *record, void *block) {
    struct hak_heap *heap = hak_self;
    uint64_t words = hak_large_words(record), facts = hak_large_facts(record);
    if (HAK_UNLIKELY(hak_large_words_name(words) != hak_kept_name(heap)) || HAK_UNLIKELY((words & HAK_LARGE_KEPT) != 0) ||
        HAK_UNLIKELY(record->start != block) || HAK_UNLIKELY(heap->clock_in <= HAK_VISIT_CLOCK)) {
        free_large_further(record, block);
        return;
    }
    heap->clock_in -= HAK_KEPT_CLOCK;
    HAK_COUNT(&heap->counters, free_large, 1);
    hak_large_end_own(record);
    if (HAK_UNLIKELY(!(facts & HAK_LARGE_NOTED))) {
        large_ended(heap, record);
        return;
    }
    if (HAK_UNLIKELY(!hak_kept_begin(heap))) {
        free_large_stolen(heap, record);
        return;
    }
    bool is_kept = hak_kept_push(heap, record, (uint32_t)facts, words);
    hak_kept_leave(heap);
    if (HAK_UNLIKELY(!is_kept)) large_ended(heap, record);
}

/* Not in the window. */
static HAK_NOINLINE void free_outside(void *block) {
    if (block && !hak_outside_give(block) && !hak_front_watched_free(block)) hak_misuse("free", block);
}

/* A thread that allocates nothing gives each block back at once; one that frees many, by chance of their addresses one free in 16 of
 * different blocks, gets a heap, so that it gathers them: one that frees what it was started with needs none. One that frees two blocks that a
 * thread left that ended, or one and then allocates, is that one's successor, and there are likely to be more such blocks: it takes over the
 * heap, and is no stranger to it. One alone may be all that a thread ever does, and nobody else could use that heap while it waits. */
static HAK_COLD struct hak_heap *free_without_heap(const void *block, struct hak_heap *owner) {
    struct hak_heap *none = hak_self;
    if (hak_load_relaxed(hak_region.fork_page) != hak_load_relaxed(&hak_epoch)) hak_fork_child(none); /* after _Fork, clone */
    if (hak_heap_is_gone(none)) return none;
    int saved = errno;
    bool is_successor = owner && hak_load_relaxed(&owner->state) == HAK_HEAP_DEAD && hak_heap_hint(owner) && hak_heap_adopt(none, owner);
    errno = saved;
    if (is_successor || (uintptr_t)block / 16 * UINT64_C(0x9e3779b97f4a7c15) >> 60 != 0) return hak_self;
    static hak_atomic_u32 pause; /* there was no heap to be had: so many tries later there may be */
    uint32_t left = hak_load_relaxed(&pause);
    if (HAK_UNLIKELY(left > 0)) {
        hak_store_relaxed(&pause, left - 1);
        return hak_self;
    }
    if (!hak_heap_birth(none)) hak_store_relaxed(&pause, 10000);
    errno = saved;
    return hak_self;
}

static HAK_NOINLINE void free_strange_further(void *block, struct hak_granule *record, struct hak_heap *owner, uint64_t index) {
    struct hak_heap *self = hak_self;
    if (HAK_UNLIKELY(hak_secure_is_on())) {
        if (HAK_UNLIKELY(hak_heap_is_none(self))) self = free_without_heap(block, NULL);
        else hak_fork_check(self);
        hak_secure_free(self, record, block, index);
        return;
    }
    if (HAK_LIKELY(!hak_heap_is_none(self))) {
        hak_fork_check(self);
        if (HAK_UNLIKELY(hak_load_relaxed(&self->has_instances)) && hak_front_free_own(self, owner, record, block, index)) return;
    } else {
        struct hak_heap *heap = owner != HAK_WATCHED ? hak_slab_owner_heap(owner) : NULL;
        self = free_without_heap(block, heap);
        if (self == heap) {
            hak_free_inline(block);
            return;
        }
    }
    hak_stranger_free_first(self, owner, record, block, (unsigned)index); /* a block past the last is free for ever */
}

static HAK_COLD void free_watched(void *block, struct hak_heap *owner) {
    if (owner != HAK_WATCHED || !hak_front_watched_free(block)) hak_misuse("free", block);
}

/* Another heap's, or misuse: a record that holds a block of the program does not change. What it calls are tail calls. */
static HAK_NOINLINE void free_strange(void *block, struct hak_granule *record, struct hak_heap *owner) {
    struct hak_heap *self = hak_self;
    if (HAK_UNLIKELY(owner == NULL || owner == self)) hak_misuse("free", block);
    uint64_t rest, index = hak_multiply((uint64_t)((char *)block - record->start), &record->reciprocal, &rest);
    if (HAK_UNLIKELY(rest >= record->reciprocal)) {
        free_watched(block, owner);
        return;
    }
    bool is_rare = HAK_UNLIKELY(hak_secure_is_on()) || HAK_UNLIKELY(hak_fork_happened(self));
    if (!is_rare && HAK_LIKELY(hak_batch_free(self, record, (unsigned)index))) return; /* hak_heap_none has no batch */
    if (HAK_UNLIKELY(is_rare) || HAK_UNLIKELY(hak_heap_is_none(self)) || HAK_UNLIKELY(hak_load_relaxed(&self->has_instances)))
        free_strange_further(block, record, owner, index);
    else hak_stranger_free_first(self, owner, record, block, (unsigned)index);
}

HAK_NOINLINE void hak_free_other(void *block, struct hak_granule *record, void *seen_owner) {
    struct hak_heap *heap = hak_self, *owner = seen_owner;
    atomic_thread_fence(memory_order_acquire); /* of that load */
    size_t middle_class = hak_slab_owners_middle(heap, owner);
    if (HAK_LIKELY(middle_class != 0)) hak_middle_free_inline(block, record, heap, "free", middle_class);
    else if (HAK_LIKELY(owner == HAK_LARGE)) free_large(record, block);
    else free_strange(block, record, owner);
}

HAK_NOINLINE void hak_free_slow(void *block) {
    struct hak_granule *record = HAK_LIKELY(hak_region_holds(block)) ? hak_granule_at(hak_granule_of(block)) : NULL;
    if (HAK_LIKELY(record != NULL)) hak_free_other(block, record, hak_load_acquire(&record->owner));
    else free_outside(block);
}

/* A thread that only frees makes no visit: here it comes to its mail. */
HAK_NOINLINE void hak_free_event(void *block) {
    struct hak_heap *heap = hak_self;
    hak_fork_check(heap);
    hak_event(heap, hak_slab_of(hak_granule_at(hak_granule_of(block))));
    if (HAK_UNLIKELY(hak_heap_chores_wait(heap))) hak_visit_chores_due(heap);
}

HAK_EXPORT HAK_ALIGNED(HAK_LINE) void free(void *block) { hak_free_inline(block); }
__attribute__((visibility("hidden"), used, alias("free"), copy(free))) void hak_free_own(void *block);

/* --- calloc --- */

static HAK_NOINLINE void *calloc_large(size_t bytes) {
    bool zeroed;
    void *block = hak_front_large(bytes, 1, HAK_FRONT_CALLER(), &zeroed);
    if (!block) return NULL;
    if (!zeroed) {
        hak_large_clear(hak_granule_at(hak_granule_of(block)), bytes);
    } else if (HAK_LIKELY(!hak_heap_is_none(hak_self))) { /* it may have been borrowed */
        HAK_COUNT(&hak_self->counters, zero_known, 1);
    }
    return block;
}

HAK_EXPORT void *calloc(size_t count, size_t each) {
    size_t bytes;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, each, &bytes))) return hak_front_too_much();
    if (HAK_UNLIKELY(bytes > HAK_SLAB_BLOCK_BYTES_MAX)) return calloc_large(bytes);
    void *block = hak_malloc_from(bytes, __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa());
    return HAK_LIKELY(block != NULL) ? memset(block, 0, bytes) : NULL;
}

/* Not beside realloc, or clang would call that one: a program with a malloc family of its own may have no reallocarray. */
HAK_EXPORT void *reallocarray(void *block, size_t count, size_t each) {
    size_t bytes;
    return HAK_LIKELY(!__builtin_mul_overflow(count, each, &bytes)) ? realloc(block, bytes) : hak_front_too_much();
}

/* glibc's second names, by which some programs reach past an interposed malloc */
HAK_ALIAS(malloc) extern void *__libc_malloc(size_t bytes);
HAK_ALIAS(free) extern void __libc_free(void *block);
HAK_ALIAS(calloc) extern void *__libc_calloc(size_t count, size_t each);
HAK_ALIAS(reallocarray) extern void *__libc_reallocarray(void *block, size_t count, size_t each);
