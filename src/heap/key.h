/* key.h - a call site's key: where the program asked, how deep its stack was, and for which class.
 *
 * The return address alone finds little: most programs allocate through a wrapper of their own. The height of the
 * stack tells the wrapper's callers apart, for the price of one subtraction.
 * Height = the thread's stack top - the stack pointer at the call. The top is kept in struct hak_heap, set at birth
 * by hak_os_stack_top(). On a stack that is not the thread's own (signal stacks, fibers) the height is only another
 * number: it makes another key, never a wrong access.
 *
 * Owns:      nothing. All inline, no memory is read but the heap's own `stack_top` by the caller.
 * Stability: address and height are kept apart (struct hak_site_key_parts is what is saved, by build id and offset);
 *            the 64-bit key is of this process only, since addresses are.
 */
#ifndef HAK_HEAP_KEY_H
#define HAK_HEAP_KEY_H

#include "base/attr.h"

/* Who called the exported function: its return address and the stack pointer before the call (the CFA). The same in
 * malloc and in what malloc leaves to by a tail call. Must be expanded in that function itself, not in a callee. */
struct hak_caller {
    const void *address;
    uintptr_t stack;
};
#define HAK_CALLER() ((struct hak_caller){ __builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa() })

HAK_INLINE uint32_t hak_caller_height(struct hak_caller caller, uintptr_t stack_top) {
    return (uint32_t)((stack_top - caller.stack) >> 3);
}

/* Never 0. Two multiplications; the high bits are the good ones: a table of 2^n slots takes key >> (64 - n). */
HAK_INLINE uint64_t hak_site_key(const void *address, uint32_t height, unsigned class_index) {
    uint64_t key = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    key ^= ((uint64_t)height << 8 | class_index) * UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    return key | 1;
}

HAK_INLINE uint64_t hak_caller_key(struct hak_caller caller, uintptr_t stack_top, unsigned class_index) {
    return hak_site_key(caller.address, hak_caller_height(caller, stack_top), class_index);
}

#endif
