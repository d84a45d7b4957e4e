/* attr.h - compiler attributes, and the three kinds of truth.
 *
 * HAK_STATIC  always true, or it does not compile.
 * HAK_ASSERT  we proved it; checked in debug builds (HAK_DEBUG) only.
 * HAK_REQUIRE the caller may lie: always checked; front/misuse.h owns those that need words.
 */
#ifndef HAK_BASE_ATTR_H
#define HAK_BASE_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_LIKELY(x)   __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_INLINE      static inline __attribute__((always_inline))
#define HAK_NOINLINE    __attribute__((noinline))
#define HAK_COLD        __attribute__((noinline, cold))
#define HAK_EXPORT      __attribute__((visibility("default"), used))
#define HAK_ALIAS(f)    __attribute__((visibility("default"), used, alias(#f), copy(f)))
#define HAK_LINE        64 /* bytes; the cache line of every processor we run on */
/* Where blocks above 1 KiB may begin in their first page (memory/region.h): 4 KiB have 32 such places. All that are classes' sizes above 1 KiB are
 * multiples of it, so that an alignment to two lines costs nothing. */
#define HAK_LEAD_STEP      128
#define HAK_LEAD_STEPS_MAX (4096 / HAK_LEAD_STEP - 1)
#define HAK_ALIGNED(n)  __attribute__((aligned(n)))

/* The line will be written soon: fetched as this processor's own. gcc knows the instruction only for newer targets; where
 * a processor does not, it is a nop. */
HAK_INLINE void hak_prefetch_write(const void *p) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(p));
#else
    __builtin_prefetch(p, 1);
#endif
}

#ifdef __cplusplus
#define HAK_STATIC(...) static_assert(__VA_ARGS__, #__VA_ARGS__)
#else
#define HAK_STATIC(...) _Static_assert(__VA_ARGS__, #__VA_ARGS__)
#endif

#ifdef __cplusplus
extern "C"
#endif
__attribute__((noreturn, cold)) void hak_assert_failed(const char *what, const char *file, int line);

#ifdef HAK_DEBUG
#define HAK_ASSERT(x) (HAK_LIKELY(x) ? (void)0 : hak_assert_failed(#x, __FILE__, __LINE__))
#else
#define HAK_ASSERT(x) ((void)sizeof(x))
#endif

/* As if it were another value from here on: each access adds the two for itself, where gcc would keep their sum in a register, one
 * instruction more. */
#if defined(__x86_64__)
#define HAK_SAME(value) __asm__("" : "+r"(value))
#else
#define HAK_SAME(value) ((void)0)
#endif

#endif
