/* operators.cc - every operator new and delete of C++17, and LLVM's __hot_cold_t forms.
 *
 * Owns:      nothing. Each operator is a fast path of its own (front/fast.h).
 * Slow:      front/new_slow.cc and front/delete_slow.c.
 * Replaced:  a program may define some of them only, by rule operator new and delete of one block, and the others then call
 *            these ([new.delete.single], [new.delete.array]). So the references below to the forms that others call are not
 *            bound to our own (cmake/library.cmake), and the others ask whose they are: not on their fast paths, which have
 *            limits of their own, 0 until somebody asked and found ours.
 * Weak:      all of them, so that a program which is linked to the static library may define its own.
 * Rejected:  including <new>: the operators are written by their mangled names, so that gcc, clang, libstdc++,
 *            libc++ and a compiler without a C++ library all make the same file.
 *
 * A size or an alignment that delete is told is checked against the block, not trusted.
 */
#include "front/delete_slow.h"
#include "front/new_slow.h"

#include "front/fast.h"

/* What the forms that call others serve on their fast paths; 0: nothing. */
static struct {
    size_t steps, window_bytes;
} derived;

HAK_INLINE size_t derived_steps() {
#ifdef __SANITIZE_THREAD__
    return __atomic_load_n(&derived.steps, __ATOMIC_RELAXED);
#else
    return derived.steps; /* as in hak_window_bytes() */
#endif
}
HAK_INLINE size_t derived_window_bytes() {
#ifdef __SANITIZE_THREAD__
    return __atomic_load_n(&derived.window_bytes, __ATOMIC_RELAXED);
#else
    return derived.window_bytes;
#endif
}

/* delete's fast path is free's; where it leaves, it leaves to functions that know its name */
HAK_INLINE void delete_inline(void *block) {
    hak_free_any(block, hak_window_bytes(), hak_delete_slow, hak_delete_other, 0, nullptr);
}
HAK_INLINE void delete_sized_inline(void *block, size_t size) {
    hak_free_any(block, hak_window_bytes(), nullptr, nullptr, size, hak_delete_sized_slow);
}

#define OPERATOR __attribute__((visibility("default"), used, weak))
#define SAME_AS(operator_) __attribute__((visibility("default"), used, weak, alias(#operator_)))
#define RARE __attribute__((section(".text.unlikely")))
#define OWN(operator_) __attribute__((visibility("hidden"), alias(#operator_)))

/* A compiler that sees both names would know them for one. */
template <typename Function> HAK_INLINE bool differ(Function *theirs, Function *own) {
    __asm__("" : "+r"(own));
    return theirs != own;
}

#if !defined(__clang__)
/* an operator that looks at fewer arguments than another is told is the same code */
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif

extern "C" {

/* The forms that others call: whoever has the name in this process, and ours. */
OPERATOR void *_Znwm(size_t size);
OPERATOR void *_Znam(size_t size);
OPERATOR void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
OPERATOR void *_ZnamSt11align_val_t(size_t size, size_t alignment);
OPERATOR void _ZdlPv(void *block) noexcept;
OPERATOR void _ZdaPv(void *block) noexcept;
OPERATOR void _ZdlPvSt11align_val_t(void *block, size_t alignment) noexcept;
OPERATOR void _ZdaPvSt11align_val_t(void *block, size_t alignment) noexcept;
OWN(_Znwm) void *own_Znwm(size_t size);
OWN(_Znam) void *own_Znam(size_t size);
OWN(_ZnwmSt11align_val_t) void *own_ZnwmSt11align_val_t(size_t size, size_t alignment);
OWN(_ZnamSt11align_val_t) void *own_ZnamSt11align_val_t(size_t size, size_t alignment);
OWN(_ZdlPv) void own_ZdlPv(void *block) noexcept;
OWN(_ZdaPv) void own_ZdaPv(void *block) noexcept;
OWN(_ZdlPvSt11align_val_t) void own_ZdlPvSt11align_val_t(void *block, size_t alignment) noexcept;
OWN(_ZdaPvSt11align_val_t) void own_ZdaPvSt11align_val_t(void *block, size_t alignment) noexcept;

#define REPLACED(operator_) HAK_UNLIKELY(differ(&operator_, &own##operator_))

/* The others may take their fast paths from here on; as far as the window reaches now. */
HAK_INLINE void derived_go() {
    size_t window_bytes = hak_window_bytes();
    if (HAK_LIKELY(derived_window_bytes() == window_bytes && derived_steps() != 0)) return; /* every visit comes by */
    if (REPLACED(_Znwm) || REPLACED(_Znam) || REPLACED(_ZdlPv) || REPLACED(_ZdaPv)) return;
    __atomic_store_n(&derived.steps, (size_t)HAK_FAST_STEPS, __ATOMIC_RELAXED);
    __atomic_store_n(&derived.window_bytes, window_bytes, __ATOMIC_RELAXED);
}

/* The others' fast path was tried, and left. */
HAK_INLINE bool derived_went() {
    size_t window_bytes = derived_window_bytes();
    return HAK_LIKELY(window_bytes != 0) && HAK_LIKELY(window_bytes == hak_window_bytes());
}

/* --- new: what it throws, it throws through us --------------------------------------------------- */

OPERATOR void *_Znwm(size_t size) { return hak_malloc_inline(size, hak_new_slow); }

static HAK_NOINLINE void *array_slow(size_t size) {
    if (REPLACED(_Znwm)) return _Znwm(size);
    derived_go();
    return hak_malloc_inline(size, hak_new_slow);
}
static HAK_NOINLINE void *nothrow_slow(size_t size) {
    if (REPLACED(_Znwm)) return hak_new_caught(&_Znwm, size);
    derived_go();
    return hak_malloc_inline(size, hak_new_nothrow_slow);
}
static HAK_NOINLINE void *array_nothrow_slow(size_t size) {
    if (REPLACED(_Znwm) || REPLACED(_Znam)) return hak_new_caught(&_Znam, size);
    derived_go();
    return hak_malloc_inline(size, hak_new_nothrow_slow);
}

OPERATOR void *_Znam(size_t size) { return hak_malloc_any(size, derived_steps(), array_slow); }
OPERATOR void *_ZnwmRKSt9nothrow_t(size_t size, const void *) noexcept {
    return hak_malloc_any(size, derived_steps(), nothrow_slow);
}
OPERATOR void *_ZnamRKSt9nothrow_t(size_t size, const void *) noexcept {
    return hak_malloc_any(size, derived_steps(), array_nothrow_slow);
}

/* Over-aligned blocks are rare and have no fast path anywhere; an alignment that every block has, has it. */
HAK_INLINE void *new_aligned(size_t size, size_t alignment) {
    if (HAK_LIKELY(alignment - 1 < HAK_NEW_ALIGNMENT && !(alignment & (alignment - 1))))
        return hak_malloc_inline(size, hak_new_slow);
    return hak_new_aligned_slow(size, alignment);
}

HAK_INLINE void *new_aligned_nothrow(size_t size, size_t alignment) {
    if (HAK_LIKELY(alignment - 1 < HAK_NEW_ALIGNMENT && !(alignment & (alignment - 1))))
        return hak_malloc_inline(size, hak_new_nothrow_slow);
    return hak_new_aligned_nothrow_slow(size, alignment);
}

RARE OPERATOR void *_ZnwmSt11align_val_t(size_t size, size_t alignment) { return new_aligned(size, alignment); }

RARE OPERATOR void *_ZnamSt11align_val_t(size_t size, size_t alignment) {
    if (REPLACED(_ZnwmSt11align_val_t)) return _ZnwmSt11align_val_t(size, alignment);
    return new_aligned(size, alignment);
}

RARE OPERATOR void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *) noexcept {
    if (REPLACED(_ZnwmSt11align_val_t)) return hak_new_aligned_caught(&_ZnwmSt11align_val_t, size, alignment);
    return new_aligned_nothrow(size, alignment);
}

RARE OPERATOR void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *) noexcept {
    if (REPLACED(_ZnwmSt11align_val_t) || REPLACED(_ZnamSt11align_val_t))
        return hak_new_aligned_caught(&_ZnamSt11align_val_t, size, alignment);
    return new_aligned_nothrow(size, alignment);
}

/* LLVM's memory profiling calls these, with a number from 0 (cold) to 255 (hot) as the last argument. It is a hint
 * that the caller found in an earlier run. What they give is deleted by the plain forms, and so comes from them. */
RARE OPERATOR void *_Znwm12__hot_cold_t(size_t size, uint8_t) { return _Znwm(size); }
RARE OPERATOR void *_Znam12__hot_cold_t(size_t size, uint8_t) { return _Znam(size); }
RARE OPERATOR void *_ZnwmRKSt9nothrow_t12__hot_cold_t(size_t size, const void *nothrow, uint8_t) noexcept {
    return _ZnwmRKSt9nothrow_t(size, nothrow);
}
RARE OPERATOR void *_ZnamRKSt9nothrow_t12__hot_cold_t(size_t size, const void *nothrow, uint8_t) noexcept {
    return _ZnamRKSt9nothrow_t(size, nothrow);
}
RARE OPERATOR void *_ZnwmSt11align_val_t12__hot_cold_t(size_t size, size_t alignment, uint8_t) { return _ZnwmSt11align_val_t(size, alignment); }
RARE OPERATOR void *_ZnamSt11align_val_t12__hot_cold_t(size_t size, size_t alignment, uint8_t) { return _ZnamSt11align_val_t(size, alignment); }
RARE OPERATOR void *_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t size, size_t alignment, const void *nothrow, uint8_t) noexcept {
    return _ZnwmSt11align_val_tRKSt9nothrow_t(size, alignment, nothrow);
}
RARE OPERATOR void *_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t size, size_t alignment, const void *nothrow, uint8_t) noexcept {
    return _ZnamSt11align_val_tRKSt9nothrow_t(size, alignment, nothrow);
}

/* --- delete: what it is told is checked ------------------------------------------------------------ */

OPERATOR void _ZdlPv(void *block) noexcept { delete_inline(block); }

static HAK_NOINLINE void single_delete_slow(void *block) {
    if (REPLACED(_ZdlPv)) return _ZdlPv(block);
    derived_go();
    delete_inline(block);
}
static HAK_NOINLINE void single_delete_sized_slow(void *block, size_t size) {
    if (HAK_LIKELY(derived_went())) return hak_delete_sized_slow(block, size);
    if (REPLACED(_ZdlPv)) return _ZdlPv(block);
    derived_go();
    delete_sized_inline(block, size);
}
static HAK_NOINLINE void array_delete_slow(void *block) {
    if (REPLACED(_ZdlPv) || REPLACED(_ZdaPv)) return _ZdaPv(block);
    derived_go();
    delete_inline(block);
}
static HAK_NOINLINE void array_delete_sized_slow(void *block, size_t size) {
    if (HAK_LIKELY(derived_went())) return hak_delete_sized_slow(block, size);
    if (REPLACED(_ZdlPv) || REPLACED(_ZdaPv)) return _ZdaPv(block);
    derived_go();
    delete_sized_inline(block, size);
}

OPERATOR void _ZdaPv(void *block) noexcept { hak_free_any(block, derived_window_bytes(), single_delete_slow, hak_delete_other, 0, nullptr); }
SAME_AS(_ZdaPv) void _ZdlPvRKSt9nothrow_t(void *, const void *) noexcept;
OPERATOR void _ZdaPvRKSt9nothrow_t(void *block, const void *) noexcept {
    hak_free_any(block, derived_window_bytes(), array_delete_slow, hak_delete_other, 0, nullptr);
}
OPERATOR void _ZdlPvm(void *block, size_t size) noexcept {
    hak_free_any(block, derived_window_bytes(), nullptr, nullptr, size, single_delete_sized_slow);
}
OPERATOR void _ZdaPvm(void *block, size_t size) noexcept {
    hak_free_any(block, derived_window_bytes(), nullptr, nullptr, size, array_delete_sized_slow);
}

/* Where the address alone shows that the alignment is right, the fast path does the rest. */
HAK_INLINE void delete_aligned(void *block, size_t alignment) {
    if (HAK_UNLIKELY(((uintptr_t)block & (alignment - 1)) != 0)) hak_delete_aligned(block, alignment);
    else delete_inline(block);
}

HAK_INLINE void delete_aligned_sized(void *block, size_t size, size_t alignment) {
    if (HAK_LIKELY(alignment <= HAK_NEW_ALIGNMENT)) delete_sized_inline(block, size);
    else hak_delete_aligned_sized(block, size, alignment);
}

RARE OPERATOR void _ZdlPvSt11align_val_t(void *block, size_t alignment) noexcept { delete_aligned(block, alignment); }

RARE OPERATOR void _ZdaPvSt11align_val_t(void *block, size_t alignment) noexcept {
    if (REPLACED(_ZdlPvSt11align_val_t)) return _ZdlPvSt11align_val_t(block, alignment);
    delete_aligned(block, alignment);
}

RARE OPERATOR void _ZdlPvmSt11align_val_t(void *block, size_t size, size_t alignment) noexcept {
    if (REPLACED(_ZdlPvSt11align_val_t)) return _ZdlPvSt11align_val_t(block, alignment);
    delete_aligned_sized(block, size, alignment);
}

RARE OPERATOR void _ZdaPvmSt11align_val_t(void *block, size_t size, size_t alignment) noexcept {
    if (REPLACED(_ZdlPvSt11align_val_t) || REPLACED(_ZdaPvSt11align_val_t)) return _ZdaPvSt11align_val_t(block, alignment);
    delete_aligned_sized(block, size, alignment);
}

RARE OPERATOR void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment, const void *) noexcept {
    _ZdlPvSt11align_val_t(block, alignment);
}
RARE OPERATOR void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment, const void *) noexcept {
    _ZdaPvSt11align_val_t(block, alignment);
}

}
