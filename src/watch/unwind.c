/* unwind.c - one call stack, by frame pointers or by call frame information.
 *
 * Frame pointers are followed only within the mapping that the thread's stack lies in, up to its first frame. Whether
 * they lead anywhere is learnt for each caller: its first few stacks are had by the unwinder and compared (stack.c).
 *
 * The unwinder (watch/cfi.c) reads tables and stack alone: nothing to load when recording starts in a running process, no lock where
 * glibc has _dl_find_object (2.35), and whatever a stack holds, a live program is not harmed.
 *
 * Threads:   any; nothing is kept.
 * Rejected:  glibc's backtrace(): it loads libgcc_s on its first call, and so allocates inside malloc.
 */
#include "watch/cfi.h"
#include "watch/stack.h"

#include "os/descriptor.h"
#include "os/mappings.h"
#include "os/os.h"
#include "os/stack.h"

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

/* Of a kernel that has to be read: the piece is on the stack, of which a coroutine has little. */
static HAK_NOINLINE bool mappings_read(struct hak_stack_bounds *bounds, uintptr_t address) {
    enum { PIECE = 1024 };
    char text[PIECE];
    struct wanted wanted = { address, bounds, false };
    hak_os_mappings(text, sizeof text, mapping_look, &wanted);
    return wanted.found;
}

bool hak_stack_bounds_find(struct hak_stack_bounds *bounds, uintptr_t address) {
    int fd = hak_os_open_read("/proc/thread-self/maps");
    if (fd < 0) return false;
    int asked = hak_os_mapping(fd, address, &bounds->low, &bounds->high);
    hak_os_close(fd);
    bool is_found = asked < 0 ? mappings_read(bounds, address) : asked == 1;
    /* What lies above the thread's first frame in the same mapping is no stack, and may be unmapped at any time. */
    uintptr_t top = hak_os_stack_top();
    if (address < top && top < bounds->high) bounds->high = top;
    return is_found;
}

/* A function that is about to return has taken its caller's registers off the stack already, and its table still says where they were. */
#ifdef __x86_64__
enum { BELOW_STACK_BYTES = 128 }; /* System V ABI x86-64, 3.2.2: the red zone, which handlers leave alone */
#else
enum { BELOW_STACK_BYTES = 0 };
#endif

/* What is the thread's own stays while it runs; a coroutine's stack may go with others', whose mapping it shares. Where there is no
 * /proc each page is asked for. */
static void stack_find(struct hak_cfi_stack *stack, struct hak_stack_bounds *bounds, uintptr_t sp) {
    enum { UNKNOWN_BYTES = 8 << 20 };
    *stack = (struct hak_cfi_stack){ sp - BELOW_STACK_BYTES, sp + UNKNOWN_BYTES, hak_cfi_page(sp) };
    if (sp < bounds->low || sp >= bounds->high)
        if (!hak_stack_bounds_find(bounds, sp)) return;
    stack->high = bounds->high;
    if (bounds->high == hak_os_stack_top()) stack->checked = 0;
}

/* --- frame pointers --- */

unsigned hak_stack_walk(struct hak_stack_here here, struct hak_stack_bounds *bounds, uintptr_t *pc, uintptr_t *slot) {
    uintptr_t frame = here.frame, least = here.stack, above, address;
    struct hak_cfi_stack stack;
    unsigned count = 0;
    stack_find(&stack, bounds, here.stack);
    pc[count] = here.address;
    slot[count++] = here.stack - sizeof(uintptr_t);
    while (count < HAK_STACK_FRAMES_MAX && frame >= least) {
        if (!hak_cfi_word(&stack, frame, &above) || !hak_cfi_word(&stack, frame + sizeof frame, &address) || address < 4096) break;
        pc[count] = address;
        slot[count++] = frame + sizeof frame;
        least = frame + 2 * sizeof frame;
        frame = above;
    }
    return count;
}

/* --- the unwinder --- */

/* Of the caller of this macro, at one of its own instructions. */
#ifdef __x86_64__
#define FRAME_HERE(frame)                                                                                              \
    __asm__ volatile("lea 0(%%rip), %%rax\n\t"                                                                         \
                     "mov %%rax, 128(%0)\n\tmov %%rsp, 56(%0)\n\tmov %%rbp, 48(%0)\n\tmov %%rbx, 24(%0)\n\t"           \
                     "mov %%r12, 96(%0)\n\tmov %%r13, 104(%0)\n\tmov %%r14, 112(%0)\n\tmov %%r15, 120(%0)"            \
                     : : "r"((frame)->reg) : "rax", "memory");                                                           \
    (frame)->known = 1u << 7 | 1u << 6 | 1u << 3 | 15u << 12;                                                            \
    (frame)->pc = (frame)->reg[HAK_CFI_RETURN]
#else
#define FRAME_HERE(frame)                                                                                              \
    __asm__ volatile("stp x19, x20, [%1, #152]\n\tstp x21, x22, [%1, #168]\n\tstp x23, x24, [%1, #184]\n\t"             \
                     "stp x25, x26, [%1, #200]\n\tstp x27, x28, [%1, #216]\n\tstp x29, x30, [%1, #232]\n\t"             \
                     "mov x9, sp\n\tstr x9, [%1, #248]\n\tadr %0, ."                                                    \
                     : "=&r"((frame)->pc) : "r"((frame)->reg) : "x9", "memory");                                         \
    (frame)->known = UINT32_MAX << 19
#endif

/* Into arrays of HAK_STACK_FRAMES_MAX + 16: our own frames come first. `bounds` of the stack that we are on, if they are known; a
 * signal's handler may be on another than whom it stopped. */
HAK_NOINLINE unsigned hak_stack_unwind(struct hak_stack_bounds *bounds, uintptr_t *pc, uintptr_t *slot) {
    struct hak_cfi_frame frame;
    struct hak_cfi_stack stack;
    struct hak_stack_bounds other = { 0, 0 };
    unsigned count = 0;
    FRAME_HERE(&frame);
    frame.is_exact = true;
    stack_find(&stack, bounds, frame.reg[HAK_CFI_STACK]);
    while (count < HAK_STACK_FRAMES_MAX + 16 && frame.pc >= 4096) {
        uintptr_t sp = frame.reg[HAK_CFI_STACK];
        pc[count] = frame.pc;
        slot[count++] = sp - sizeof(uintptr_t);
        if (sp < stack.low || sp > stack.high) stack_find(&stack, &other, sp); /* a signal's handler had a stack of its own */
        stack.low = sp - BELOW_STACK_BYTES;
        if (!hak_cfi_step(&frame, &stack)) break;
    }
    return count;
}
