/* unwind.c - one call stack, by frame pointers or by the unwinder.
 *
 * Frame pointers are followed only within the mapping that the thread's stack lies in, up to its first frame. Whether
 * they lead anywhere is learnt for each caller: its first few stacks are had by the unwinder and compared (stack.c).
 *
 * The unwinder is libgcc's, a copy under names of ours (cmake/library.cmake): nothing to load when recording starts in a
 * running process, and no lock where glibc has _dl_find_object (2.35).
 *
 * Threads:   any; nothing is kept.
 * Rejected:  glibc's backtrace(): it loads libgcc_s on its first call, and so allocates inside malloc.
 */
#include "watch/stack.h"

#include "os/descriptor.h"
#include "os/mappings.h"
#include "os/os.h"
#include "os/stack.h"

#include <unwind.h>

#define COPY __attribute__((visibility("hidden"), weak)) /* a compiler without libgcc_eh: frame pointers only */
extern _Unwind_Reason_Code hak_unwind_Backtrace(_Unwind_Trace_Fn, void *) COPY;
extern _Unwind_Ptr hak_unwind_GetIP(struct _Unwind_Context *) COPY;
extern _Unwind_Word hak_unwind_GetCFA(struct _Unwind_Context *) COPY;

/* --- the mapping that a stack lies in --- */

struct wanted {
    uintptr_t address;
    struct hak_stack_bounds *bounds;
    bool found;
};

static bool mapping_look(const struct hak_mapping *mapping, void *context) {
    struct wanted *wanted = context;
    if (wanted->address < mapping->low || wanted->address >= mapping->high) return true;
    *wanted->bounds = (struct hak_stack_bounds){ mapping->low, mapping->high };
    wanted->found = mapping->is_readable;
    return false;
}

bool hak_stack_bounds_find(struct hak_stack_bounds *bounds, uintptr_t address) {
    enum { PIECE = 2048 };
    char text[PIECE];
    struct wanted wanted = { address, bounds, false };
    int fd = hak_os_open_read("/proc/self/maps");
    if (fd < 0) return false;
    int asked = hak_os_mapping(fd, address, &bounds->low, &bounds->high);
    hak_os_close(fd);
    if (asked < 0) hak_os_mappings(text, sizeof text, mapping_look, &wanted);
    /* What lies above the thread's first frame in the same mapping is no stack, and may be unmapped at any time. */
    uintptr_t top = hak_os_stack_top();
    if (address < top && top < bounds->high) bounds->high = top;
    return asked < 0 ? wanted.found : asked == 1;
}

/* --- frame pointers --- */

unsigned hak_stack_walk(struct hak_stack_here here, struct hak_stack_bounds *bounds, uintptr_t *pc, uintptr_t *slot) {
    uintptr_t frame = here.frame, least = here.stack;
    unsigned count = 0;
    pc[count] = here.address;
    slot[count++] = here.stack - sizeof(uintptr_t);
    /* no sum with `frame`: it is whatever the caller has in that register, -8 as well */
    while (count < HAK_STACK_FRAMES_MAX && frame >= least && frame % sizeof(uintptr_t) == 0 &&
           frame < bounds->high && bounds->high - frame >= 2 * sizeof(uintptr_t)) {
        const uintptr_t *at = (const uintptr_t *)frame;
        if (at[1] < 4096) break;
        pc[count] = at[1];
        slot[count++] = frame + sizeof(uintptr_t);
        least = frame + 2 * sizeof(uintptr_t);
        frame = at[0];
    }
    return count;
}

/* --- the unwinder --- */

struct unwinding {
    uintptr_t *pc, *slot;
    unsigned count;
};

static _Unwind_Reason_Code frame_note(struct _Unwind_Context *context, void *argument) {
    struct unwinding *unwinding = argument;
    uintptr_t pc = hak_unwind_GetIP(context);
    if (pc == 0) return _URC_END_OF_STACK;
    unwinding->pc[unwinding->count] = pc;
    unwinding->slot[unwinding->count++] = hak_unwind_GetCFA(context) - sizeof(uintptr_t);
    return unwinding->count < HAK_STACK_FRAMES_MAX + 16 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Into arrays of HAK_STACK_FRAMES_MAX + 16: our own frames come first. */
unsigned hak_stack_unwind(uintptr_t *pc, uintptr_t *slot) {
    struct unwinding unwinding = { pc, slot, 0 };
    if (!hak_unwind_Backtrace || !hak_unwind_GetIP || !hak_unwind_GetCFA) return 0;
    hak_unwind_Backtrace(frame_note, &unwinding);
    return unwinding.count;
}
