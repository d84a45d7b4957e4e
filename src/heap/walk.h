/* walk.h - the blocks that the program holds, shown one after another: hak_walk() of hakmem.h. See heap/census.c.
 *
 * Threads:   any. Nothing is held while the caller's function runs: it may allocate, free and leave by longjmp.
 */
#ifndef HAK_HEAP_WALK_H
#define HAK_HEAP_WALK_H

#include "base/attr.h"
#include "hakmem/hakmem.h"

struct hak_walk {
    int (*each)(const struct hak_held *held, void *context);
    void *context;
};

HAK_INLINE int hak_walk_show(const struct hak_walk *walk, void *block, size_t bytes, bool is_large, bool is_guarded) {
    struct hak_held held = { block, bytes, is_large, is_guarded };
    return walk->each(&held, walk->context);
}

/* All of them, those of who hangs on heap/hooks.h among them, until `each` gives another number than 0: that number. */
int hak_walk_all(const struct hak_walk *walk);

#endif
