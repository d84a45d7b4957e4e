/* hooks.h - what an upper layer may hang on the heap: sampling (watch/) does.
 *
 * Owns:      the pointers; NULL until somebody sets them, which is why the front and the heap ask first, and only where
 *            the way is unusual already: a visit that is due, a free that would be misuse.
 * Threads:   any; set and read relaxed. Who was set once must be ready to be called for ever.
 */
#ifndef HAK_HEAP_HOOKS_H
#define HAK_HEAP_HOOKS_H

#include "base/atomic.h"
#include "base/attr.h"

struct hak_heap;
struct hak_census;
struct hak_walk;

struct hak_hooks {
    /* Among the chores of a heap whose `follows` is another number: what it counts to is to be set anew. */
    hak_atomic_u32 generation;
    void (*_Atomic follow)(struct hak_heap *heap);
    /* A visit of the class or pool found `block` and more for its bin, and hak_shelf.ahead went past the highest, which only
     * who hangs here makes it do. What it gives is malloc's result. */
    void *(*_Atomic visited)(size_t bytes, struct hak_heap *heap, unsigned shelf_index, void *block);
    /* The same of a block above 1 KiB that was kept, and hak_middle.ahead. */
    void *(*_Atomic kept)(size_t bytes, struct hak_heap *heap, unsigned class_index, void *block);
    /* Once per 20 ms of a process that visits, at the most. */
    void (*_Atomic tick)(struct hak_heap *heap, uint64_t now_ms);
    void (*_Atomic forked)(void); /* in a forked child, before anything else is done there */
    /* hak_heap.large_ahead went past the highest: instead of a large block one of theirs, or NULL; then the block that was
     * handed out, perhaps outside the window. */
    void *(*_Atomic large_apart)(struct hak_heap *heap, size_t bytes, size_t align, bool *zeroed);
    void (*_Atomic large_taken)(struct hak_heap *heap, void *block, size_t bytes);
    /* It is about to be grown, shrunk or moved; it was, or was not: what is known of it, from one to the other. Between
     * them a block that moved has left its place, where another may be. */
    uint32_t (*_Atomic large_lift)(void *block);
    void (*_Atomic large_lay)(struct hak_heap *heap, uint32_t lifted, void *block, size_t old_bytes, size_t bytes);
    /* A block whose granule's owner is HAK_WATCHED, or of no granule, is freed; false: none of theirs lives there. */
    bool (*_Atomic watched_free)(struct hak_heap *heap, void *block);
    void (*_Atomic watched_site)(void *block, uintptr_t site); /* the program names its call site itself */
    size_t (*_Atomic watched_bytes)(const void *block); /* usable; 0: no live block of theirs starts there */
    /* What they know of any address: false, nothing. */
    bool (*_Atomic watched_place)(const void *address, const char **start, size_t *bytes, bool *is_free);
    /* A line was written about misuse of this address, by a call that frees or not, and the program is about to end: what else is known. */
    void (*_Atomic watched_misused)(const void *address, bool frees);
    void (*_Atomic shortage)(void); /* malloc is about to fail */
    void (*_Atomic census)(struct hak_census *census);
    int (*_Atomic walk)(const struct hak_walk *walk); /* their live blocks: heap/walk.h */
};
extern struct hak_hooks hak_hooks;

/* Their granules' records: reciprocal 0, so that no index is right, and `words` of a row that is nobody's. */
extern char hak_watched_mark[HAK_LINE];
#define HAK_WATCHED ((struct hak_heap *)(void *)hak_watched_mark)

#define HAK_HOOK(name) hak_load_relaxed(&hak_hooks.name)

#endif
