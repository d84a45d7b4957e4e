/* alone.h - what one thread of the process does at a time, and others pass by: a tick's chores, a dump; or what the first one makes for all.
 *
 * Threads:   any, of a heap each.
 * Left:      whoever is at it may be gone: in a forked child, where the epoch is another; or by a longjmp of a signal handler's, and then the same
 *            thread comes again from a frame of its own stack that is not below that one. From below, or on another stack, it is such a
 *            handler itself, which passes by.
 */
#ifndef HAK_WATCH_ALONE_H
#define HAK_WATCH_ALONE_H

#include "heap/heap.h"

struct hak_alone {
    hak_atomic_u32 epoch;    /* in which somebody is at it; 0 or stale: nobody */
    struct hak_heap *holder; /* whose thread; NULL: not said yet, or nobody */
    uintptr_t frame;         /* his */
};

/* Not every way here is as deep: malloc's and free's differ by some frames. A handler of signals lies deeper than the kernel's record of what
 * it interrupted, which takes more than this (x86-64 without any vector state: 128 of the red zone and 1.5 KiB). */
enum { HAK_ALONE_SLACK = 1024 };

/* Until hak_alone_end(). False: somebody is at it. */
HAK_INLINE bool hak_alone_begin(struct hak_alone *alone) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch), seen = hak_load_relaxed(&alone->epoch);
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    struct hak_heap *self = hak_self; /* hak_heap_none, of many threads, has no stack_top */
    bool is_his = seen == epoch && __atomic_load_n(&alone->holder, __ATOMIC_RELAXED) == self;
    bool is_left = is_his && frame + HAK_ALONE_SLACK >= alone->frame && frame < self->stack_top;
    if (!is_left && (seen == epoch || !hak_cas(&alone->epoch, &seen, epoch))) return false;
    alone->frame = frame;
    atomic_signal_fence(memory_order_seq_cst);
    __atomic_store_n(&alone->holder, self, __ATOMIC_RELAXED);
    return true;
}

HAK_INLINE void hak_alone_end(struct hak_alone *alone) {
    __atomic_store_n(&alone->holder, NULL, __ATOMIC_RELAXED); /* first: who finds himself named is at it */
    hak_store_release(&alone->epoch, 0);
}

/* What is made once: 0 not yet, HAK_MADE, or an even number while somebody is at it, which in a forked child is stale. */
enum { HAK_MADE = 1 };

/* It is the caller's to make; then HAK_MADE is stored, or 0. */
HAK_INLINE bool hak_make_begin(hak_atomic_u32 *made) {
    uint32_t seen = hak_load_acquire(made), busy = hak_load_relaxed(&hak_epoch) * 2;
    return seen != HAK_MADE && seen != busy && hak_cas(made, &seen, busy);
}

#endif
