/* operators.cc - every operator new and delete of C++17, and LLVM's __hot_cold_t forms.
 *
 * Owns:      nothing. Each operator is a fast path of its own (front/fast.h), or another name for one that does the
 *            same: an array is a block, and std::nothrow_t makes no difference to delete.
 * Slow:      front/new_slow.cc and front/delete_slow.c.
 * Weak:      all of them, so that a program which is linked to the static library may define its own.
 * Rejected:  including <new>: the operators are written by their mangled names, so that gcc, clang, libstdc++,
 *            libc++ and a compiler without a C++ library all make the same file.
 *
 * A size or an alignment that delete is told is checked against the block, not trusted.
 */
#include "front/delete_slow.h"
#include "front/new_slow.h"

#include "front/fast.h"

/* delete's fast path is free's; where it leaves, it leaves to functions that know its name */
HAK_INLINE void delete_inline(void *block) { hak_free_any(block, hak_delete_slow, hak_delete_other, 0, nullptr); }
HAK_INLINE void delete_sized_inline(void *block, size_t size) { hak_free_any(block, nullptr, nullptr, size, hak_delete_sized_slow); }

#define OPERATOR __attribute__((visibility("default"), used, weak))
#define SAME_AS(operator_) __attribute__((visibility("default"), used, weak, alias(#operator_)))

#if !defined(__clang__)
/* an operator that looks at fewer arguments than another is told is the same code */
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif

extern "C" {

/* --- new: what it throws, it throws through us --------------------------------------------------- */

OPERATOR void *_Znwm(size_t size) { return hak_malloc_inline(size, hak_new_slow); }

OPERATOR void *_ZnwmRKSt9nothrow_t(size_t size, const void *) noexcept {
    return hak_malloc_inline(size, hak_new_nothrow_slow);
}

/* Over-aligned blocks are rare and have no fast path anywhere; an alignment that every block has, has it. */
OPERATOR void *_ZnwmSt11align_val_t(size_t size, size_t alignment) {
    if (HAK_LIKELY(alignment - 1 < HAK_NEW_ALIGNMENT && !(alignment & (alignment - 1))))
        return hak_malloc_inline(size, hak_new_slow);
    return hak_new_aligned_slow(size, alignment);
}

OPERATOR void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *) noexcept {
    if (HAK_LIKELY(alignment - 1 < HAK_NEW_ALIGNMENT && !(alignment & (alignment - 1))))
        return hak_malloc_inline(size, hak_new_nothrow_slow);
    return hak_new_aligned_nothrow_slow(size, alignment);
}

SAME_AS(_Znwm) void *_Znam(size_t);
SAME_AS(_ZnwmRKSt9nothrow_t) void *_ZnamRKSt9nothrow_t(size_t, const void *) noexcept;
SAME_AS(_ZnwmSt11align_val_t) void *_ZnamSt11align_val_t(size_t, size_t);
SAME_AS(_ZnwmSt11align_val_tRKSt9nothrow_t)
void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t, size_t, const void *) noexcept;

/* LLVM's memory profiling calls these, with a number from 0 (cold) to 255 (hot) as the last argument. It is a hint
 * that the caller found in an earlier run; the argument after those of the plain form is not looked at. */
SAME_AS(_Znwm) void *_Znwm12__hot_cold_t(size_t, uint8_t);
SAME_AS(_Znwm) void *_Znam12__hot_cold_t(size_t, uint8_t);
SAME_AS(_ZnwmRKSt9nothrow_t) void *_ZnwmRKSt9nothrow_t12__hot_cold_t(size_t, const void *, uint8_t) noexcept;
SAME_AS(_ZnwmRKSt9nothrow_t) void *_ZnamRKSt9nothrow_t12__hot_cold_t(size_t, const void *, uint8_t) noexcept;
SAME_AS(_ZnwmSt11align_val_t) void *_ZnwmSt11align_val_t12__hot_cold_t(size_t, size_t, uint8_t);
SAME_AS(_ZnwmSt11align_val_t) void *_ZnamSt11align_val_t12__hot_cold_t(size_t, size_t, uint8_t);
SAME_AS(_ZnwmSt11align_val_tRKSt9nothrow_t)
void *_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t, size_t, const void *, uint8_t) noexcept;
SAME_AS(_ZnwmSt11align_val_tRKSt9nothrow_t)
void *_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t, size_t, const void *, uint8_t) noexcept;

/* --- delete: what it is told is checked ------------------------------------------------------------ */

OPERATOR void _ZdlPv(void *block) noexcept { delete_inline(block); }
OPERATOR void _ZdlPvm(void *block, size_t size) noexcept { delete_sized_inline(block, size); }

/* Where the address alone shows that the alignment is right, the fast path does the rest. */
OPERATOR void _ZdlPvSt11align_val_t(void *block, size_t alignment) noexcept {
    if (HAK_UNLIKELY(((uintptr_t)block & (alignment - 1)) != 0)) hak_delete_aligned(block, alignment);
    else delete_inline(block);
}

OPERATOR void _ZdlPvmSt11align_val_t(void *block, size_t size, size_t alignment) noexcept {
    if (HAK_LIKELY(alignment <= HAK_NEW_ALIGNMENT)) delete_sized_inline(block, size);
    else hak_delete_aligned_sized(block, size, alignment);
}

SAME_AS(_ZdlPv) void _ZdaPv(void *) noexcept;
SAME_AS(_ZdlPv) void _ZdlPvRKSt9nothrow_t(void *, const void *) noexcept;
SAME_AS(_ZdlPv) void _ZdaPvRKSt9nothrow_t(void *, const void *) noexcept;
SAME_AS(_ZdlPvm) void _ZdaPvm(void *, size_t) noexcept;
SAME_AS(_ZdlPvSt11align_val_t) void _ZdaPvSt11align_val_t(void *, size_t) noexcept;
SAME_AS(_ZdlPvSt11align_val_t) void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *, size_t, const void *) noexcept;
SAME_AS(_ZdlPvSt11align_val_t) void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *, size_t, const void *) noexcept;
SAME_AS(_ZdlPvmSt11align_val_t) void _ZdaPvmSt11align_val_t(void *, size_t, size_t) noexcept;

}
