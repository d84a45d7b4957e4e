/* secure.c - malloc under the secure level (heap/secure.h): where each of its visits ends.
 *
 * Owns:      nothing.
 * Threads:   any.
 * Errors:    ENOMEM with NULL; misuse ends the program (front/misuse.c).
 */
#include "front/front.h"

#include "heap/secure.h"
#include "rules/options.h"

static HAK_NOINLINE void *malloc_apart_further(size_t bytes, struct hak_heap *home) {
    const void *address = home->from_address ? home->from_address : __builtin_return_address(0);
    uintptr_t stack = home->from_address ? home->from_stack : (uintptr_t)__builtin_dwarf_cfa();
    return hak_front_secure(home, bytes + HAK_SECURE_WORD_BYTES, bytes, address, stack);
}

/* `home` is the thread's own heap, whose visit it is: of 32 KiB at most. The usual way calls nothing but as its last thing. */
static void *malloc_apart(size_t bytes, struct hak_heap *home) {
    struct hak_heap *heap = home->of_malloc;
    size_t total = bytes + HAK_SECURE_WORD_BYTES;
    bool is_usual = total <= HAK_SMALL_BYTES_MAX && HAK_LIKELY(hak_family_fits(heap, hak_load_relaxed(&hak_secure_family), home)) &&
                    HAK_LIKELY(hak_load_relaxed(hak_region.fork_page) == hak_load_relaxed(&home->epoch)) && HAK_LIKELY(!home->is_survivor);
    if (HAK_UNLIKELY(!is_usual)) return malloc_apart_further(bytes, home);
    unsigned class_index = hak_class_small(total);
    if (heap->bin[class_index].word == 0) return malloc_apart_further(bytes, home);
    return hak_secure_take_drawn(heap, class_index, hak_classes[class_index].block_bytes, bytes);
}

/* No memory for one: as heap_after_all() of malloc.c. */
static HAK_COLD struct hak_heap *instance_after_all(struct hak_heap *home, size_t bytes) {
    struct hak_heap *heap;
    for (unsigned tries = 0;; tries++) {
        hak_heap_collect(home);
        heap = hak_family_find(hak_load_relaxed(&hak_secure_family), home);
        if (heap || !hak_shortage_ask(bytes, tries)) return heap;
    }
}

void *hak_front_secure(struct hak_heap *home, size_t total, size_t bytes, const void *address, uintptr_t stack) {
    bool zeroed;
    hak_fork_check(home);
    if (HAK_UNLIKELY(home->is_survivor)) hak_fork_rebuild(home);
    if (HAK_UNLIKELY(total > HAK_SLAB_BLOCK_BYTES_MAX)) return hak_front_large(bytes, 1, address, stack, &zeroed);
    struct hak_heap *heap = home->of_malloc;
    if (HAK_UNLIKELY(!hak_family_fits(heap, hak_load_relaxed(&hak_secure_family), home))) {
        heap = hak_family_find(hak_load_relaxed(&hak_secure_family), home);
        if (HAK_UNLIKELY(!heap) && !(heap = instance_after_all(home, bytes))) return hak_shortage_end();
        home->of_malloc = heap;
        heap->stack_top = home->stack_top;
    }
    heap->watch = home->watch; /* samples are the thread's */
    heap->from_address = address;
    heap->from_stack = stack;
    void *block = hak_secure_take(heap, total, bytes);
    heap->from_address = NULL;
    return block;
}

HAK_COLD bool hak_front_secure_begin(void) {
    if (!hak_secure_begin()) return false;
    __atomic_store_n(&hak_options.huge_from_mb, 0, __ATOMIC_RELAXED); /* where pages lie between slabs none are huge */
    __atomic_store_n(&hak_options.disable_bigcache, 1, __ATOMIC_RELAXED); /* what was freed goes back */
    __atomic_store_n(&hak_secure_misuse, hak_misuse_written, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_heap_apart, malloc_apart, __ATOMIC_RELEASE);
    return true;
}

/* --- large blocks that change their size --- */

HAK_COLD bool hak_front_secure_large_resize(struct hak_granule *record, size_t bytes) {
    size_t before = hak_large_usable(record);
    if (bytes > PTRDIFF_MAX || !hak_secure_large_open(record)) return false;
    bool is_resized = hak_large_resize(record, bytes + (hak_secure_guard_granules() << HAK_GRANULE_SHIFT));
    hak_secure_large_close(record, is_resized ? bytes : before, false);
    return is_resized;
}

HAK_COLD void *hak_front_secure_large_move(struct hak_granule *record, size_t bytes) {
    size_t before = hak_large_usable(record);
    if (!hak_secure_large_open(record)) return NULL;
    void *moved = hak_large_move(record, bytes + (hak_secure_guard_granules() << HAK_GRANULE_SHIFT));
    if (moved) record = hak_granule_at(hak_granule_of(moved));
    hak_secure_large_close(record, moved ? bytes : before, false);
    return moved;
}
