/* stack.h - the call stack of a sample, as a row of the published table of stacks.
 *
 * Threads:   any; hak_stack_take() is called by a thread for itself.
 */
#ifndef HAK_WATCH_STACK_H
#define HAK_WATCH_STACK_H

#include "base/attr.h"
#include "watch/published.h"

/* What a thread remembers between its samples. */
struct hak_stack_bounds {
    uintptr_t low, high; /* of the mapping that its stack lies in; 0: not asked yet */
};

/* Where the library was entered: by whom, and the stack pointer before the call. */
struct hak_stack_call {
    uintptr_t address, stack;
};

/* Where the hook was entered: its own return address, the stack pointer before the call, the caller's frame pointer. */
struct hak_stack_here {
    uintptr_t address, stack, frame;
};
#define HAK_STACK_HERE()                                                                                         \
    ((struct hak_stack_here){ (uintptr_t)__builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa(),          \
                              *(uintptr_t *)__builtin_frame_address(0) })

/* Maps the tables and tells `published` of them; false when memory is short. */
bool hak_stack_start(struct hak_published *published, bool small);

/* The row (0: unknown), and *call. `with_stack` false: only the call is wanted. */
uint32_t hak_stack_take(struct hak_stack_here here, struct hak_stack_bounds *bounds, bool with_stack, struct hak_stack_call *call);

struct hak_stack_row *hak_stack_row_at(uint32_t row);

/* While nobody takes any: the tables again, with those rows only that `each` asks for, under new numbers. It is called twice: what it is
 * given takes a row's number, and says which it has from then on, the first time the same. 0: unknown. Sums are to be cleared. */
typedef uint32_t hak_stack_number(uint32_t row);
void hak_stack_renew(void (*each)(hak_stack_number *number));

/* Which code is the library's own, whose frames are left out: for who asks for frames without the tables. */
void hak_stack_ours_find(void);

/* The frames themselves, by the unwinder, and no row: for few stacks that must be right. How many. */
unsigned hak_stack_frames(struct hak_stack_here here, struct hak_stack_bounds *bounds, uint64_t *frame, unsigned count_max);
/* The same for a thread that a signal stopped at `here`, in its handler; the first is here.address itself. */
unsigned hak_stack_frames_of_signal(struct hak_stack_here here, uint64_t *frame, unsigned count_max);

/* For tests. */
unsigned hak_stack_walk(struct hak_stack_here here, struct hak_stack_bounds *bounds, uintptr_t *pc, uintptr_t *slot);
unsigned hak_stack_unwind(struct hak_stack_bounds *bounds, uintptr_t *pc, uintptr_t *slot);

bool hak_stack_bounds_find(struct hak_stack_bounds *bounds, uintptr_t address);

#endif
