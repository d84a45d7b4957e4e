/* cfi.h - one step up a call stack, by call frame information (.eh_frame), reading no memory but code's tables and the stack. */
#ifndef HAK_WATCH_CFI_H
#define HAK_WATCH_CFI_H

#include "base/attr.h"

/* The registers that a function keeps for its caller, in DWARF's numbers (System V ABI x86-64, figure 3.36; DWARF for the Arm 64-bit
 * architecture, 4.1), of which the lowest are all. */
#ifdef __x86_64__
enum { HAK_CFI_REGISTERS = 17, HAK_CFI_STACK = 7, HAK_CFI_FRAME = 6, HAK_CFI_RETURN = 16 };
#else
enum { HAK_CFI_REGISTERS = 32, HAK_CFI_STACK = 31, HAK_CFI_FRAME = 29, HAK_CFI_RETURN = 30 };
#endif

struct hak_cfi_frame {
    uintptr_t pc;                          /* where it goes on when what it called returns, or was interrupted */
    uintptr_t reg[HAK_CFI_REGISTERS];      /* as they are then */
    uint32_t known;                        /* which of them */
    bool is_exact;                         /* `pc` is an instruction that it is at, not the one behind its call */
};

/* Memory that may be read: a part of a stack. */
struct hak_cfi_stack {
    uintptr_t low, high;
    uintptr_t checked; /* what is not the thread's own may go at any time: which page was looked at last; 0: need not be */
};

/* A word of it; false where there is none, or none may be read. */
bool hak_cfi_word(struct hak_cfi_stack *stack, uintptr_t address, uintptr_t *word);

HAK_INLINE uintptr_t hak_cfi_page(uintptr_t address) { return (address >> 12) + 1; } /* or a part of one */

/* Before the first step, from a thread's own course: looks up what would take the loader's lock later, perhaps in a signal's handler. */
void hak_cfi_begin(void);
/* From a frame to its caller's; false: there is none, or it cannot be known. */
bool hak_cfi_step(struct hak_cfi_frame *frame, struct hak_cfi_stack *stack);

/* Of a signal: the thread called this address, and there is nothing to run. Its caller is the next frame. */
void hak_cfi_jumped(uintptr_t address);

#endif
