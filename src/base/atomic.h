/* atomic.h - C11 atomics under short names, so that an order stands in every access.
 *
 * The owner of a slab reads and writes its bits with relaxed or release accesses that compile to plain
 * moves; PROTOCOLS: docs/protocols.md.
 */
#ifndef HAK_BASE_ATOMIC_H
#define HAK_BASE_ATOMIC_H

#include "base/attr.h"
#include <stdatomic.h>

#define hak_load_relaxed(p)       atomic_load_explicit((p), memory_order_relaxed)
#define hak_load_acquire(p)       atomic_load_explicit((p), memory_order_acquire)
#define hak_store_relaxed(p, v)   atomic_store_explicit((p), (v), memory_order_relaxed)
#define hak_store_release(p, v)   atomic_store_explicit((p), (v), memory_order_release)
#define hak_exchange(p, v)        atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define hak_or(p, v)              atomic_fetch_or_explicit((p), (v), memory_order_acq_rel)
#define hak_and(p, v)             atomic_fetch_and_explicit((p), (v), memory_order_acq_rel)
#define hak_add(p, v)             atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define hak_cas(p, expected, v)                                                                                  \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel, memory_order_acquire)
#define hak_cas_weak(p, expected, v)                                                                             \
    atomic_compare_exchange_weak_explicit((p), (expected), (v), memory_order_acq_rel, memory_order_acquire)

typedef _Atomic(uint64_t) hak_atomic_u64;
typedef _Atomic(uint32_t) hak_atomic_u32;
typedef _Atomic(int64_t) hak_atomic_i64;

/* Adds to a number that only the calling thread writes, and others read relaxed. */
HAK_INLINE void hak_owner_add(uint64_t *n, uint64_t amount) {
    /* relaxed: nobody else writes, and a reader orders nothing by it */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__("addq %1, %0" : "+m"(*n) : "er"(amount) : "cc"); /* one instruction, where gcc makes three */
#else
    __atomic_store_n(n, __atomic_load_n(n, __ATOMIC_RELAXED) + amount, __ATOMIC_RELAXED);
#endif
}

/* Puts a pointer where only the calling thread and its signal handlers do, and gives what was there. */
HAK_INLINE char *hak_owner_swap(_Atomic(char *) *place, char *next) {
    char *seen = atomic_load_explicit(place, memory_order_relaxed);
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool is_swapped;
    do __asm__ volatile("cmpxchgq %3, %1" : "+a"(seen), "+m"(*place), "=@ccz"(is_swapped) : "r"(next) : "memory"); /* no lock: no other thread */
    while (__builtin_expect(!is_swapped, 0));
#else
    while (!atomic_compare_exchange_weak_explicit(place, &seen, next, memory_order_acq_rel, memory_order_relaxed)) {}
#endif
    return seen;
}

/* The same, and true when it went past the highest: it counts up to there from what somebody had set. `*last` is any pointer
 * that is ready before: the addition comes after it, and the branch on its carry right behind. */
HAK_INLINE bool hak_owner_passes(uint64_t *n, uint64_t amount, void **last) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool passes;
    __asm__("addq %3, %0" : "+m"(*n), "=@ccc"(passes), "+r"(*last) : "er"(amount));
    return passes;
#else
    (void)last;
    return (*n += amount) < amount;
#endif
}
HAK_INLINE bool hak_owner_passes_u32(uint32_t *n, uint32_t amount) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool passes;
    __asm__("addl %2, %0" : "+m"(*n), "=@ccc"(passes) : "er"(amount));
    return passes;
#else
    return (*n += amount) < amount;
#endif
}

#endif
