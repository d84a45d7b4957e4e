/* crash.c - the crash report's signal handlers.
 *
 * Owns:      the actions that stood before ours, and a signal stack for the main thread.
 * Layers:    two entries, `first` and `second`, each with what stood there before it. A program's handler that came after the
 *            first is what the second calls. When that handler puts back what it had found (the first) and returns, the
 *            fault comes again, to the first, and goes on to what was there before everything. There is no third.
 * Borrows:   what is known of an address: a function that the front registers, since watch stands below it.
 * Threads:   any, one report at a time (reporter.h); a thread that crashes in its report leaves it and goes on to the program's own
 *            handling, and so does one that waited in vain for another's.
 * Invariant: whatever would have happened without us happens after us: the handler that stood there is called, or
 *            the default action is restored and the instruction runs into it again, so that a core file shows
 *            the place.
 *
 * Everything in the handler is async-signal-safe: one text, which is not on the handler's stack, for that may be small, and one write(2).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "watch/crash.h"

#include "base/atomic.h"
#include "os/os.h"
#include "watch/alone.h"
#include "watch/cfi.h"
#include "watch/reporter.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

/* 64 KiB: a signal frame with every register of today's processors is 3 to 12 KiB */
enum { STACK_BYTES = 64 * 1024, REPORT_BYTES = 4096, NULL_BYTES = 64 * 1024 };

static const int signals[] = { SIGSEGV, SIGBUS, SIGABRT };
static const char signal_names[][8] = { "SIGSEGV", "SIGBUS", "SIGABRT" };
enum { SIGNAL_COUNT = 3 };

enum { LAYERS = 2 };
static struct sigaction before[LAYERS][SIGNAL_COUNT]; /* what stood there when ours were installed */
static hak_atomic_u32 installed[LAYERS][SIGNAL_COUNT]; /* HAK_MADE, if they are */
static hak_describe_function *describe_address; /* NULL: no crash report is wanted */
static hak_crash_function *listener;
static struct hak_reporter reporter;
static sigjmp_buf way_back;             /* the reporter's */
static uintptr_t way_back_frame;        /* its; 0: not set yet */
static char report_bytes[REPORT_BYTES]; /* its */
static HAK_ALIGNED(16) char stack_bytes[STACK_BYTES];

static unsigned signal_index(int signal) {
    return signal == SIGSEGV ? 0 : signal == SIGBUS ? 1 : 2;
}

/* --- what the processor says ----------------------------------------------------------------------- */

#if defined(__x86_64__)
static const struct {
    char name[4];
    int index;
} registers[] = {
    { "rax", REG_RAX }, { "rbx", REG_RBX }, { "rcx", REG_RCX }, { "rdx", REG_RDX }, { "rsi", REG_RSI },
    { "rdi", REG_RDI }, { "rbp", REG_RBP }, { "r8", REG_R8 },   { "r9", REG_R9 },   { "r10", REG_R10 },
    { "r11", REG_R11 }, { "r12", REG_R12 }, { "r13", REG_R13 }, { "r14", REG_R14 }, { "r15", REG_R15 },
};
enum { REGISTER_COUNT = sizeof(registers) / sizeof(registers[0]), PAGE_FAULT = 14, FAULT_WRITE = 2, FAULT_FETCH = 16 };

static uintptr_t register_get(const ucontext_t *context, unsigned i, struct hak_text *name) {
    hak_text_str(name, registers[i].name);
    return (uintptr_t)context->uc_mcontext.gregs[registers[i].index];
}

static uintptr_t instruction_get(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}

static enum hak_crash_access access_get(const ucontext_t *context) {
    long error = context->uc_mcontext.gregs[REG_ERR];
    if (context->uc_mcontext.gregs[REG_TRAPNO] != PAGE_FAULT)
        return HAK_CRASH_ACCESS;
    return error & FAULT_FETCH ? HAK_CRASH_JUMP : error & FAULT_WRITE ? HAK_CRASH_WRITE : HAK_CRASH_READ;
}

static void frame_get(const ucontext_t *context, struct hak_crash *crash) {
    crash->stack = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
    crash->frame = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
}

/* An address that is no address at all (not canonical) is not told by the kernel: it says 0. */
static bool address_is_known(const siginfo_t *info, const ucontext_t *context) {
    return info->si_addr || context->uc_mcontext.gregs[REG_TRAPNO] == PAGE_FAULT;
}
#elif defined(__aarch64__)
enum { REGISTER_COUNT = 31 };

static uintptr_t register_get(const ucontext_t *context, unsigned i, struct hak_text *name) {
    hak_text_format(name, "x%u", i);
    return (uintptr_t)context->uc_mcontext.regs[i];
}

static uintptr_t instruction_get(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.pc;
}

/* The kernel appends records to the context; one of them holds the syndrome of the exception. */
static enum hak_crash_access access_get(const ucontext_t *context) {
    enum { SYNDROME_MAGIC = 0x45535201, INSTRUCTION_ABORT = 0x20, DATA_ABORT = 0x24, WRITE_NOT_READ = 1 << 6 };
    const unsigned char *at = (const void *)context->uc_mcontext.__reserved, *end = at + sizeof context->uc_mcontext.__reserved;
    while (at + 16 <= end) {
        uint32_t magic, bytes;
        uint64_t syndrome;
        __builtin_memcpy(&magic, at, 4);
        __builtin_memcpy(&bytes, at + 4, 4);
        __builtin_memcpy(&syndrome, at + 8, 8);
        if (magic == SYNDROME_MAGIC) {
            unsigned kind = syndrome >> 26 & 0x3e; /* the lowest bit says at which level */
            if (kind == INSTRUCTION_ABORT) return HAK_CRASH_JUMP;
            return kind != DATA_ABORT ? HAK_CRASH_ACCESS : syndrome & WRITE_NOT_READ ? HAK_CRASH_WRITE : HAK_CRASH_READ;
        }
        if (magic == 0 || bytes < 8) break;
        at += bytes;
    }
    return HAK_CRASH_ACCESS;
}

static void frame_get(const ucontext_t *context, struct hak_crash *crash) {
    crash->stack = (uintptr_t)context->uc_mcontext.sp;
    crash->frame = (uintptr_t)context->uc_mcontext.regs[29];
}

static bool address_is_known(const siginfo_t *info, const ucontext_t *context) {
    (void)info, (void)context;
    return true;
}
#endif

/* --- the report ------------------------------------------------------------------------------------ */

static const char access_names[][12] = { "access to", "read of", "write to", "jump to" };

static void tell_listener(int signal, const siginfo_t *info, const ucontext_t *context) {
    hak_crash_function *told = __atomic_load_n(&listener, __ATOMIC_ACQUIRE);
    if (!told || signal == SIGABRT || info->si_code <= 0 || !address_is_known(info, context))
        return;
    struct hak_crash crash = { .address = (uintptr_t)info->si_addr, .access = access_get(context),
                               .instruction = instruction_get(context) };
    frame_get(context, &crash);
    told(&crash);
}

static void text_address(struct hak_text *text, uintptr_t address) {
    size_t used = text->used;
    if (address < NULL_BYTES)
        hak_text_str(text, "a NULL pointer, or a field or element of one");
    else if (!describe_address(address, text) && text->used == used)
        hak_text_str(text, "not in memory of malloc");
}

/* A line for each register that points into our memory: often the pointer that led to the bad one. */
static void text_registers(struct hak_text *text, const ucontext_t *context) {
    for (unsigned i = 0; i < REGISTER_COUNT; i++) {
        size_t used = text->used;
        hak_text_str(text, "hakmem:   ");
        uintptr_t value = register_get(context, i, text);
        hak_text_format(text, " = %p: ", (void *)value);
        if (value < NULL_BYTES || !describe_address(value, text) || text->used + 2 > text->capacity)
            text->used = used;
        else
            hak_text_char(text, '\n');
    }
}

static void report(int signal, const siginfo_t *info, const ucontext_t *context) {
    struct hak_text text = HAK_TEXT(report_bytes);
    hak_text_format(&text, "hakmem: %s", signal_names[signal_index(signal)]);
    if (info->si_code <= 0) { /* a call of kill or raise, so there is no address */
        if ((unsigned)info->si_pid == hak_os_pid())
            hak_text_str(&text, " raised by the program itself");
        else
            hak_text_format(&text, " sent by process %d", info->si_pid);
        hak_text_char(&text, '\n');
    } else {
        uintptr_t address = (uintptr_t)info->si_addr;
        if (address_is_known(info, context)) {
            hak_text_format(&text, ": %s %p by the instruction at %p: ", access_names[access_get(context)], info->si_addr,
                            (void *)instruction_get(context));
            text_address(&text, address);
        } else {
            hak_text_format(&text, ": access to no possible address by the instruction at %p",
                            (void *)instruction_get(context));
        }
        hak_text_char(&text, '\n');
        text_registers(&text, context);
    }
    hak_text_end_line(&text);
    hak_os_note(2, report_bytes, hak_text_held(&text)); /* a full file sends a signal of its own */
}

/* --- and then on ----------------------------------------------------------------------------------- */

/* When the handler returns the fault happens again. Not what was sent, nor what the kernel found by itself: no room for another signal's
 * frame (or an address that is none; no harm), memory that failed or a tag that did not fit, which is told late. */
static bool comes_again(int signal, const siginfo_t *info) {
    enum { MEMORY_FAILED = 5, TAG_FAILED = 8 }; /* BUS_MCEERR_AO; SEGV_MTEAERR, which older headers lack */
    return info->si_code > 0 && info->si_code != SI_KERNEL && info->si_code != (signal == SIGBUS ? MEMORY_FAILED : TAG_FAILED);
}

static void default_restore(int signal, const siginfo_t *info) {
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigaction(signal, &action, NULL);
    if (!comes_again(signal, info))
        raise(signal); /* waits until the handler returns */
}

static void go_on(unsigned layer, int signal, siginfo_t *info, void *context) {
    struct sigaction *action = &before[layer][signal_index(signal)];
    if (action->sa_flags & SA_SIGINFO) {
        void (*handler)(int, siginfo_t *, void *) = action->sa_sigaction;
        if (action->sa_flags & (int)SA_RESETHAND)
            *action = (struct sigaction){ .sa_handler = SIG_DFL };
        handler(signal, info, context);
    } else if (action->sa_handler == SIG_IGN && info->si_code <= 0) {
        return;
    } else if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN) {
        default_restore(signal, info); /* the kernel does not let a fault be ignored either */
    } else {
        void (*handler)(int) = action->sa_handler;
        if (action->sa_flags & (int)SA_RESETHAND)
            *action = (struct sigaction){ .sa_handler = SIG_DFL };
        handler(signal);
    }
}

static void report_left(void) {
    hak_crash_function *told = __atomic_load_n(&listener, __ATOMIC_ACQUIRE);
    if (told) told(NULL);
    hak_reporter_end(&reporter);
}

/* The report, from which a fault of its own leads back here. The second layer stands in front of the program's own handler, for the guards
 * alone: that handler may mend the fault (Java's does, by the thousand), and if it does not, it goes on to what it found, the first layer. */
static void report_guarded(unsigned layer, int signal, const siginfo_t *info, const ucontext_t *context, uint64_t me) {
    if (!hak_reporter_begin(&reporter, me))
        return;
    way_back_frame = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (sigsetjmp(way_back, 1) == 0) {
        way_back_frame = (uintptr_t)__builtin_frame_address(0);
        tell_listener(signal, info, context);
        if (layer == 0 && __atomic_load_n(&describe_address, __ATOMIC_RELAXED))
            report(signal, info, context);
        hak_reporter_end(&reporter);
    } else {
        report_left();
    }
}

/* The signals blocked as the kernel would have them for the handler that stood here. */
static void mask_of_before(unsigned layer, int signal, const ucontext_t *context) {
    const struct sigaction *action = &before[layer][signal_index(signal)];
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    sigprocmask(SIG_SETMASK, &context->uc_sigmask, NULL);
    sigprocmask(SIG_BLOCK, &action->sa_mask, NULL);
    if (!(action->sa_flags & (int)SA_NODEFER))
        sigprocmask(SIG_BLOCK, &only, NULL);
}

/* The present fault is the report's own: its frame is not far above, as a report must do with a stack of STACK_BYTES. Else the report was left, by a
 * longjmp out of a handler of the program's (SIGABRT's; a watchdog's), or has not begun. */
static bool is_of_report(uintptr_t here) {
    return way_back_frame != 0 && way_back_frame - here < STACK_BYTES;
}

static void handle(unsigned layer, int signal, siginfo_t *info, void *context) {
    int error = errno;
    uint64_t me = hak_reporter_me();
    if (hak_reporter_is(&reporter, me)) {
        if (is_of_report((uintptr_t)__builtin_frame_address(0)))
            siglongjmp(way_back, 1);
        report_left();
    }
    report_guarded(layer, signal, info, context, me);
    mask_of_before(layer, signal, context);
    errno = error;
    go_on(layer, signal, info, context);
    errno = error;
}

static void on_signal_first(int signal, siginfo_t *info, void *context) { handle(0, signal, info, context); }
static void on_signal_second(int signal, siginfo_t *info, void *context) { handle(1, signal, info, context); }

static bool is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) &&
           (action->sa_sigaction == on_signal_first || action->sa_sigaction == on_signal_second);
}

/* --- start ----------------------------------------------------------------------------------------- */

/* The main thread gets a stack to report a stack overflow on, unless it has one. Other threads that want it
 * have to bring theirs, as for any handler. */
static void stack_give(void) {
    stack_t stack;
    if (sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {
        stack = (stack_t){ .ss_sp = stack_bytes, .ss_size = sizeof(stack_bytes) };
        sigaltstack(&stack, NULL);
    }
}

/* Ours in front of what is there. A handler of the program that has no stack of its own for signals gets none. */
static void install(unsigned layer, int signal) {
    struct sigaction *there = &before[layer][signal_index(signal)], now;
    hak_atomic_u32 *state = &installed[layer][signal_index(signal)];
    if (!hak_make_begin(state))
        return;
    if (sigaction(signal, NULL, &now) != 0 || is_ours(&now)) { /* refused; or a thread of the parent's had come so far */
        hak_store_release(state, (uint32_t)HAK_MADE);
        return;
    }
    *there = now;
    bool is_default = !(there->sa_flags & SA_SIGINFO) && (there->sa_handler == SIG_DFL || there->sa_handler == SIG_IGN);
    struct sigaction action = { .sa_sigaction = layer == 0 ? on_signal_first : on_signal_second };
    action.sa_flags = SA_SIGINFO | (int)SA_NODEFER | (there->sa_flags & SA_RESTART) |
                      (is_default ? SA_ONSTACK : there->sa_flags & SA_ONSTACK);
    /* nothing comes in between but a fault of the report itself, which leads to handle() again */
    sigfillset(&action.sa_mask);
    for (unsigned j = 0; j < SIGNAL_COUNT; j++)
        sigdelset(&action.sa_mask, signals[j]);
    struct sigaction replaced;
    if (sigaction(signal, &action, &replaced) == 0 && !is_ours(&replaced)) *there = replaced; /* another thread's, since we asked */
    hak_store_release(state, (uint32_t)HAK_MADE);
}

void hak_crash_at_start(hak_describe_function *describe) {
    int error = errno;
    hak_cfi_begin();
    __atomic_store_n(&describe_address, describe, __ATOMIC_RELAXED);
    stack_give();
    for (unsigned i = 0; i < SIGNAL_COUNT; i++)
        install(0, signals[i]);
    errno = error;
}

void hak_crash_listen(hak_crash_function *told, bool may_look) {
    int error = errno;
    __atomic_store_n(&listener, told, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < SIGNAL_COUNT; i++) {
        struct sigaction now;
        if (signals[i] == SIGABRT || hak_load_relaxed(&installed[1][i]) == HAK_MADE)
            continue;
        if (hak_load_acquire(&installed[0][i]) != HAK_MADE)
            install(0, signals[i]);
        else if (may_look && sigaction(signals[i], NULL, &now) == 0 && !is_ours(&now))
            install(1, signals[i]);
    }
    errno = error;
}
