/* heaps.c - hak_heap_t of hakmem.h: heaps that the program makes. See heap/family.h.
 *
 * A call names the heap, so hak_self stays what it is: a handler that allocates in the middle, or leaves by longjmp, and the callback of a
 * shortage allocate from the thread's own heap as ever. Small blocks come from the thread's instance of the family, as in malloc.c; large ones are
 * the thread's own heap's, which may have kept one, and become the family's.
 *
 * Owns:      nothing.
 * Threads:   any.
 * Errors:    ENOMEM with NULL; misuse ends the program (front/misuse.c).
 * Rejected:  hak_self set to the instance for the length of a call (docs/decisions/0011-heaps.md).
 */
#include "front/front.h"

#include "hakmem/hakmem.h"
#include "heap/family.h"
#include "heap/kept.h"
#include "heap/middle.h"
#include "heap/secure.h"
#include "heap/walk.h"
#include "memory/outside.h"

#include <errno.h>
#include <string.h>

static void heap_check(const char *function, const struct hak_family *family) {
    if (HAK_UNLIKELY(!family || !hak_family_is_used(family))) hak_misuse_heap(function, family);
}

/* --- the calling thread's instance --- */

/* Who asked, for what a call leaves to. */
struct asker {
    const void *address;
    uintptr_t stack;
};

/* A visit is due: of the thread's own heap, too, which may make no other. It has what the thread freed as a stranger. */
static void home_visits(struct hak_heap *home) {
    if (HAK_UNLIKELY(hak_heap_chores_wait(home))) hak_visit_chores_due(home);
}

static HAK_NOINLINE void *middle_sample(size_t bytes, struct hak_heap *heap, size_t class_index, void *block) {
    void *(*on_kept)(size_t, struct hak_heap *, unsigned, void *) = HAK_HOOK(kept);
    return on_kept ? on_kept(bytes, heap, (unsigned)class_index, block) : block;
}

/* As hak_malloc_slow(), of no more than HAK_SLAB_BLOCK_BYTES_MAX. */
static HAK_COLD void *secure_take(struct hak_heap *heap, struct hak_heap *home, size_t bytes, struct asker asker) {
    home_visits(home);
    heap->from_address = asker.address;
    heap->from_stack = asker.stack;
    void *block = hak_secure_take(heap, bytes + HAK_SECURE_WORD_BYTES, bytes);
    heap->from_address = NULL;
    return block;
}

static void *small_take(struct hak_heap *heap, struct hak_heap *home, size_t bytes, size_t align, struct asker asker) {
    if (bytes == 0) bytes = 1;
    if (HAK_UNLIKELY(hak_secure_is_on())) return secure_take(heap, home, bytes, asker);
    size_t class_index = bytes <= HAK_SMALL_BYTES_MAX ? hak_class_small(bytes) : hak_heap_middle_class(heap, bytes);
    if (HAK_UNLIKELY(hak_front_has_power(align, bytes))) class_index = hak_class_power(bytes);
    if (hak_class_is_middle((unsigned)class_index)) {
        struct hak_middle *middle = hak_middle_of(heap, class_index);
        unsigned count = hak_middle_count(middle);
        if (count != 0) {
            bool is_sample;
            if (HAK_UNLIKELY(hak_load_relaxed(&heap->mail) != 0)) hak_middle_look_last(middle, count);
            void *block = hak_middle_take(heap, middle, count, &is_sample);
            return HAK_LIKELY(!is_sample) ? block : middle_sample(bytes, heap, class_index, block);
        }
        middle->state = 0;
    }
    struct hak_bin *bin = hak_bin_at(heap, class_index);
    uint64_t word = bin->word;
    if (word != 0) {
        bin->word = word & (word - 1);
        return bin->base + hak_word_first(word) * (size_t)hak_classes[class_index].block_bytes;
    }
    home_visits(home);
    heap->from_address = asker.address;
    heap->from_stack = asker.stack;
    void *block = hak_visit(bytes, heap, (unsigned)class_index);
    heap->from_address = NULL;
    return block;
}

/* The limit refused a slab: what the family holds free is given back, and looked for again. */
void *hak_front_short_of_family(size_t bytes, struct hak_heap *heap, unsigned class_index) {
    int saved = errno;
    heap->is_short = 1;
    hak_family_collect(hak_load_relaxed(&heap->family), heap);
    hak_event_relist(heap);
    void *block = hak_visit_any(bytes, heap, class_index);
    heap->is_short = 0;
    if (!block) return hak_front_too_much();
    errno = saved;
    return block;
}

static HAK_NOINLINE void *large_take(struct hak_family *family, struct hak_heap *home, size_t bytes, size_t align, struct asker asker, bool *zeroed) {
    if (HAK_UNLIKELY(bytes > PTRDIFF_MAX)) return hak_front_too_much();
    struct hak_heap *heap = hak_family_find(family, home);
    size_t count = ((bytes - 1) >> HAK_GRANULE_SHIFT) + 1;
    if (HAK_UNLIKELY(!heap)) return hak_shortage_end();
    if (HAK_UNLIKELY(!hak_family_reserve(family, count))) {
        hak_family_collect(family, heap);
        if (!hak_family_reserve(family, count)) return hak_front_too_much();
    }
    home_visits(home);
    HAK_COUNT(&home->counters, large_alloc, 1);
    void *block = NULL;
    size_t more = count / 4, reserved = count; /* what is kept may be larger by so much */
    if (count <= HAK_KEPT_SIZES && align <= HAK_GRANULE_BYTES && (more == 0 || hak_family_reserve(family, more))) {
        *zeroed = false;
        reserved += more;
        block = hak_kept_take(home, count, hak_front_span_bytes(bytes, align));
    }
    if (!block) block = hak_front_large_found(home, bytes, align, asker.address, asker.stack, zeroed);
    if (HAK_UNLIKELY(block && !hak_region_holds(block))) { /* a mapping of its own: nothing says whose it is */
        hak_outside_give(block);
        block = hak_front_too_much();
    }
    if (HAK_UNLIKELY(!block)) {
        hak_family_note(family, -(int64_t)reserved);
        return NULL;
    }
    struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    hak_large_family_set(record, hak_kept_name(heap));
    hak_family_note(family, (int64_t)hak_family_granules(record) - (int64_t)reserved);
    return block;
}

/* --- any size and alignment --- */

static void *block_take_at(struct hak_family *family, struct hak_heap *home, size_t bytes, size_t align, struct asker asker, bool *zeroed) {
    hak_fork_check(home);
    if (HAK_UNLIKELY(home->is_survivor)) hak_fork_rebuild(home);
    *zeroed = false;
    if (bytes > HAK_SLAB_BLOCK_BYTES_MAX - hak_secure_word_bytes()) return large_take(family, home, bytes, align, asker, zeroed);
    struct hak_heap *heap = hak_family_find(family, home);
    return HAK_LIKELY(heap != NULL) ? small_take(heap, home, bytes, align, asker) : hak_shortage_end();
}

/* Of a thread whose heap died, or that can have none: it has one, and an instance, for as long as this takes. */
static HAK_COLD void *block_borrowing(struct hak_family *family, size_t bytes, size_t align, struct asker asker, bool *zeroed) {
    struct hak_heap *home = hak_heap_borrow();
    if (!home) return hak_shortage_end();
    void *block = block_take_at(family, home, bytes, align, asker, zeroed);
    hak_heap_give_back(home); /* and what it had of families */
    return block;
}

/* Small: to a multiple of the alignment, of which all are aligned so (front/aligned.c). */
static HAK_NOINLINE void *block_take(const char *function, struct hak_family *family, size_t bytes, size_t align, struct asker asker, bool *zeroed) {
    size_t asked = bytes;
    heap_check(function, family);
    if (align > 16) {
        if (HAK_UNLIKELY(align > PTRDIFF_MAX || bytes > PTRDIFF_MAX - align)) return hak_front_too_much();
        size_t behind = hak_secure_word_bytes(), rounded = hak_front_aligned_bytes(align, (bytes ? bytes : 1) + behind) - behind;
        bytes = rounded <= HAK_SLAB_BLOCK_BYTES_MAX - behind ? rounded : hak_front_aligned_large(bytes);
    }
    struct hak_heap *home = hak_heap_is_gone(hak_self) ? NULL : hak_front_heap();
    void *block;
    if (HAK_LIKELY(home != NULL)) block = block_take_at(family, home, bytes, align, asker, zeroed);
    else block = hak_heap_is_gone(hak_self) ? block_borrowing(family, bytes, align, asker, zeroed) : hak_shortage_end();
    if (HAK_UNLIKELY(hak_secure_is_on()) && align > 16 && block && bytes <= HAK_SLAB_BLOCK_BYTES_MAX - HAK_SECURE_WORD_BYTES) hak_secure_arm_as(block, asked);
    return block;
}

#define ASKER() ((struct asker){ __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa() })

HAK_EXPORT void *hak_heap_malloc(hak_heap_t *family, size_t bytes) {
    struct hak_heap *heap = HAK_LIKELY(family != NULL) && HAK_LIKELY(!hak_secure_is_on()) ? hak_family_look(family, hak_self) : NULL;
    size_t step = (bytes - 1) >> 4;
    if (HAK_LIKELY(heap != NULL) && HAK_LIKELY(step < HAK_FAST_STEPS)) {
        struct hak_bin *bin = (struct hak_bin *)(void *)((char *)heap + heap->class_bytes[step]);
        uint64_t word = bin->word;
        if (HAK_LIKELY(word != 0)) {
            bin->word = word & (word - 1);
            return bin->base + hak_bit_first(word) * heap->class_bytes[step];
        }
    }
    bool zeroed;
    return block_take("hak_heap_malloc", family, bytes, 1, ASKER(), &zeroed);
}

HAK_EXPORT void *hak_heap_calloc(hak_heap_t *family, size_t count, size_t each) {
    size_t bytes;
    bool zeroed;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, each, &bytes))) return hak_front_too_much();
    void *block = block_take("hak_heap_calloc", family, bytes, 1, ASKER(), &zeroed);
    if (!block || zeroed) return block;
    if (bytes <= HAK_SLAB_BLOCK_BYTES_MAX) return memset(block, 0, bytes);
    hak_large_clear(hak_granule_at(hak_granule_of(block)), bytes);
    return block;
}

HAK_EXPORT void *hak_heap_aligned_alloc(hak_heap_t *family, size_t align, size_t bytes) {
    bool zeroed;
    if (HAK_UNLIKELY(align == 0 || (align & (align - 1)) != 0)) {
        errno = EINVAL;
        return NULL;
    }
    return block_take("hak_heap_aligned_alloc", family, bytes, align, ASKER(), &zeroed);
}

/* --- whose is a block --- */

static struct hak_family *family_of(const struct hak_granule *record) {
    struct hak_heap *owner = record ? hak_load_acquire(&((struct hak_granule *)(uintptr_t)record)->owner) : NULL;
    if (!owner || owner == HAK_WATCHED) return NULL;
    struct hak_family *family = owner == HAK_LARGE ? hak_family_of_large(record) : hak_family_of_heap(hak_slab_owner_heap(owner));
    return family != hak_load_relaxed(&hak_secure_family) ? family : NULL; /* which is malloc's */
}

HAK_EXPORT hak_heap_t *hak_heap_of(const void *block) {
    if (!block) return NULL;
    return family_of(hak_find("hak_heap_of", block).record);
}

/* --- another size --- */

/* It moves: a block of a family to that, any other as ever. */
HAK_COLD void *hak_front_malloc_beside(const void *block, size_t bytes, const void *address, uintptr_t stack) {
    bool zeroed;
    struct hak_family *family = hak_region_holds(block) ? family_of(hak_granule_at(hak_granule_of(block))) : NULL;
    if (HAK_LIKELY(!family)) return hak_malloc_from(bytes, address, stack);
    return block_take("realloc", family, bytes, 1, (struct asker){ address, stack }, &zeroed);
}

HAK_COLD void *hak_front_aligned_beside(const void *block, size_t align, size_t bytes) {
    bool zeroed;
    struct hak_family *family = hak_region_holds(block) ? family_of(hak_granule_at(hak_granule_of(block))) : NULL;
    if (HAK_LIKELY(!family)) return hak_front_aligned(align, bytes);
    return block_take("rallocx", family, bytes, align, ASKER(), &zeroed);
}

HAK_EXPORT void *hak_heap_realloc(hak_heap_t *family, void *block, size_t bytes) {
    struct asker asker = ASKER();
    bool zeroed;
    heap_check("hak_heap_realloc", family);
    if (!block) return block_take("hak_heap_realloc", family, bytes, 1, asker, &zeroed);
    struct hak_found found = hak_find("hak_heap_realloc", block);
    if (bytes == 0 || family_of(found.record) == family) return hak_front_realloc("hak_heap_realloc", block, bytes, asker.address, asker.stack);
    void *fresh = block_take("hak_heap_realloc", family, bytes, 1, asker, &zeroed);
    if (!fresh) return NULL;
    memcpy(fresh, block, found.bytes < bytes ? found.bytes : bytes);
    hak_free_inline(block);
    return fresh;
}

/* --- free: by the thread whose instance has it --- */

bool hak_front_free_own(struct hak_heap *self, struct hak_heap *owner, struct hak_granule *record, void *block, size_t index) {
    struct hak_heap *heap = hak_slab_owner_heap(owner);
    if (hak_load_relaxed(&heap->home) != self) return false;
    size_t middle_class = hak_slab_owners_middle(heap, owner);
    if (middle_class != 0) {
        hak_middle_free(block, record, heap, "free", (unsigned)middle_class);
        return true;
    }
    struct hak_row *row = hak_row_of(record->words);
    if (HAK_UNLIKELY(!hak_bit_set((uint64_t *)(void *)row->word, index))) hak_misuse("free", block);
    if (HAK_UNLIKELY(--row->countdown == 0)) hak_event(heap, row->slab);
    return true;
}

bool hak_front_kept_own(const struct hak_granule *record, const void *block) {
    struct hak_heap *owner = hak_load_relaxed(&((struct hak_granule *)(uintptr_t)record)->owner);
    if (owner == HAK_WATCHED) return false;
    struct hak_heap *heap = hak_slab_owner_heap(owner);
    size_t middle_class = hak_slab_owners_middle(heap, owner);
    return middle_class != 0 && hak_load_relaxed(&heap->home) == hak_self && hak_middle_has(heap, (unsigned)middle_class, block);
}

/* --- its life --- */

HAK_EXPORT hak_heap_t *hak_heap_new(size_t limit_bytes) {
    struct hak_family *family = hak_start() ? hak_family_new(limit_bytes) : NULL;
    return family ? family : hak_shortage_end();
}

/* The calling thread is about to look at other heaps. */
static void others_ready(const char *function, const struct hak_family *family) {
    heap_check(function, family);
    hak_fork_child(hak_self);
    if (!hak_heap_is_none(hak_self) && HAK_UNLIKELY(hak_self->is_survivor)) hak_fork_rebuild(hak_self);
}

HAK_EXPORT void hak_heap_clear(hak_heap_t *family) {
    others_ready("hak_heap_clear", family);
    hak_family_clear(family);
}

HAK_EXPORT void hak_heap_destroy(hak_heap_t *family) {
    if (!family) return;
    others_ready("hak_heap_destroy", family);
    hak_family_destroy(family);
}

/* The blocks go to the calling thread's heap; one whose heap died has another for as long as this takes. Without memory for one the family stays,
 * which nobody knows any more: its blocks live on all the same. */
HAK_EXPORT void hak_heap_delete(hak_heap_t *family) {
    if (!family) return;
    others_ready("hak_heap_delete", family);
    struct hak_heap *home = hak_heap_is_gone(hak_self) ? NULL : hak_front_heap();
    bool is_gone = !home && hak_heap_is_gone(hak_self);
    if (is_gone) home = hak_heap_borrow();
    if (HAK_UNLIKELY(!home)) return;
    struct hak_family *malloc_family = hak_load_relaxed(&hak_secure_family);
    struct hak_heap *to = HAK_LIKELY(!malloc_family) ? home : hak_family_find(malloc_family, home);
    if (HAK_LIKELY(to != NULL)) hak_family_delete(family, to);
    if (is_gone) hak_heap_give_back(home);
}

/* --- what it holds --- */

HAK_EXPORT int hak_heap_walk(hak_heap_t *family, int (*each)(const struct hak_held *held, void *context), void *context) {
    others_ready("hak_heap_walk", family);
    return hak_walk_all(&(struct hak_walk){ each, context, family });
}

static int stats_add(const struct hak_held *held, void *context) {
    struct hak_heap_stats *stats = context;
    stats->live_count++;
    stats->live_bytes += held->bytes;
    return 0;
}

HAK_EXPORT void hak_heap_stats_get(hak_heap_t *family, struct hak_heap_stats *stats, size_t bytes) {
    struct hak_heap_stats all = { 0, 0, 0, 0 };
    others_ready("hak_heap_stats_get", family);
    hak_walk_all(&(struct hak_walk){ stats_add, &all, family });
    int64_t taken = hak_load_relaxed(&family->taken_granules);
    all.taken_bytes = (uint64_t)(taken > 0 ? taken : 0) << HAK_GRANULE_SHIFT;
    all.limit_bytes = (uint64_t)hak_load_relaxed(&family->limit_granules) << HAK_GRANULE_SHIFT;
    memset(stats, 0, bytes);
    memcpy(stats, &all, bytes < sizeof all ? bytes : sizeof all);
}
