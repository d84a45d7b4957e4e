/* unwind.c - one call stack, by frame pointers or by the unwinder.
 *
 * Frame pointers are followed only within the mapping that the thread's stack lies in, up to its first frame. Whether
 * they lead anywhere is learnt for each caller: its first few stacks are had by the unwinder and compared (stack.c).
 *
 * The unwinder is libgcc's, a copy under names of ours (cmake/library.cmake): nothing to load when recording starts in a
 * running process, and no lock where glibc has _dl_find_object (2.35). Of an address that no object holds libgcc reads the
 * code there, for it may be the kernel's way back from a signal; code that was made at run time may be gone, or closed, with
 * its frame still on the stack. So the copy asks hak_unwind_find_object() instead, which ends the stack there.
 *
 * Threads:   any; nothing is kept, but for the address that a crashed thread jumped to.
 * Rejected:  glibc's backtrace(): it loads libgcc_s on its first call, and so allocates inside malloc.
 */
#include "watch/stack.h"

#include "base/atomic.h"
#include "os/descriptor.h"
#include "os/mappings.h"
#include "os/os.h"
#include "os/stack.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unwind.h>

#define HIDDEN __attribute__((visibility("hidden")))
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
    int fd = hak_os_open_read("/proc/thread-self/maps");
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

/* --- code that cannot be read --- */

#ifdef DLFO_STRUCT_HAS_EH_DBASE

enum { CFA_UNDEFINED = 0x07, CFA_DEF_CFA = 0x0c, CFA_OFFSET = 0x80, PCREL_SDATA4 = 0x1b, OMIT = 0xff };
#ifdef __x86_64__
enum { RETURN_COLUMN = 16, STACK_COLUMN = 7, CALL_BYTES = 8 };
#else
enum { RETURN_COLUMN = 30, STACK_COLUMN = 31, CALL_BYTES = 0 };
#endif

/* .eh_frame_hdr and .eh_frame of one function that reaches over all of memory (DWARF 5, 6.4; LSB 5, 10.6). */
struct everywhere {
    uint8_t version, frame_encoding, count_encoding, table_encoding;
    int32_t to_frame; /* from here to cie_bytes */
    uint32_t cie_bytes;
    int32_t cie_id;
    uint8_t cie_version;
    char augmentation[1];
    uint8_t code_align, data_align, return_column;
    uint8_t cfa[3], rule[3], padding[5];
    uint32_t fde_bytes;
    int32_t to_cie; /* back from here to cie_bytes */
    uint64_t start, bytes;
    uint32_t end;
};
HAK_STATIC(offsetof(struct everywhere, fde_bytes) == 8 + 24 && offsetof(struct everywhere, start) == 8 + 24 + 8);

#define EVERYWHERE(...)                                                                                                   \
    {                                                                                                                     \
        .version = 1, .frame_encoding = PCREL_SDATA4, .count_encoding = OMIT, .table_encoding = OMIT, .to_frame = 4,      \
        .cie_bytes = 20, .cie_version = 1, .code_align = 1, .data_align = 0x78 /* -8 */, .return_column = RETURN_COLUMN,  \
        .cfa = { CFA_DEF_CFA, STACK_COLUMN, CALL_BYTES }, .rule = __VA_ARGS__, .fde_bytes = 20,                           \
        .to_cie = offsetof(struct everywhere, to_cie) - offsetof(struct everywhere, cie_bytes), .start = 1,               \
        .bytes = UINT64_MAX - 1,                                                                                          \
    }
static const struct everywhere ends = EVERYWHERE({ CFA_UNDEFINED, RETURN_COLUMN });
#ifdef __x86_64__
static const struct everywhere called = EVERYWHERE({ CFA_OFFSET | RETURN_COLUMN, 1 }); /* nothing pushed yet */
#else
static const struct everywhere called = EVERYWHERE({ 0 }); /* the link register is what it was */
#endif

static hak_atomic_u64 jumped_to;

/* In _dl_find_object's place. */
HIDDEN int hak_unwind_find_object(void *pc, struct dl_find_object *object);
int hak_unwind_find_object(void *pc, struct dl_find_object *object) {
    if (_dl_find_object(pc, object) == 0) return 0;
    uintptr_t address = (uintptr_t)pc;
    bool is_jump = address == hak_load_relaxed(&jumped_to);
#ifdef __aarch64__
    address += address % 4 == 3; /* a return address less one; the code there is what libgcc would read */
#endif
    if (!is_jump && hak_os_readable((const void *)(address & ~(uintptr_t)7)) && hak_os_readable((const void *)((address + 10) & ~(uintptr_t)7)))
        return -1;
    memset(object, 0, sizeof *object);
    object->dlfo_eh_frame = (void *)(uintptr_t)(is_jump ? &called : &ends);
    return 0;
}

void hak_stack_jumped(uintptr_t address) { hak_store_relaxed(&jumped_to, address); }

/* A static program has no index of its frames, and tells them to its own unwinder alone; ours would abort at its first step. */
static bool knows_this_code(void) {
    static hak_atomic_u32 known; /* 0 not asked yet, 1 yes, 2 no */
    uint32_t seen = hak_load_relaxed(&known);
    if (HAK_UNLIKELY(seen == 0)) {
        struct dl_find_object object;
        bool is_there = _dl_find_object((void *)(uintptr_t)hak_stack_jumped, &object) == 0 && object.dlfo_eh_frame;
        seen = is_there ? 1 : 2;
        hak_store_relaxed(&known, seen);
    }
    return seen == 1;
}

#else

void hak_stack_jumped(uintptr_t address) { (void)address; }
static bool knows_this_code(void) { return true; }

#endif

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
    if (!hak_unwind_Backtrace || !hak_unwind_GetIP || !hak_unwind_GetCFA || !knows_this_code()) return 0;
    hak_unwind_Backtrace(frame_note, &unwinding);
    return unwinding.count;
}
