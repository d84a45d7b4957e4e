/* unwind.c - stacks by call frame information: what libgcc finds, at each instruction of a program; and no harm where frames are none.
 *
 * Owns:   SIGTRAP (the processor stops after each instruction), SIGUSR1, an alternate stack.
 * Method: in the handler both unwinders look at the same stack; their frames are to be the same, from the interrupted function on.
 *
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "os/loaded.h"
#include "watch/cfi.h"
#include "watch/stack.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

enum { FRAMES = HAK_STACK_FRAMES_MAX + 16, STACK_BYTES = 1 << 18 };

struct frames {
    uintptr_t pc[FRAMES], slot[FRAMES];
    unsigned count;
};

static _Unwind_Reason_Code theirs_note(struct _Unwind_Context *context, void *argument) {
    struct frames *frames = argument;
    uintptr_t pc = _Unwind_GetIP(context);
    if (pc < 4096 || frames->count == FRAMES) return _URC_END_OF_STACK;
    frames->slot[frames->count] = _Unwind_GetCFA(context) - sizeof(uintptr_t);
    frames->pc[frames->count++] = pc;
    return _URC_NO_REASON;
}

static struct hak_stack_bounds bounds;
static volatile unsigned compared, deepest, different; /* to the compiler raise() calls nobody here */
static uintptr_t first_different;

/* From `pc` on, which is the place that was interrupted or the function that called. */
static void compare_from(uintptr_t pc) {
    static struct frames ours, theirs; /* an alternate stack has little room */
    unsigned a = 0, b = 0;
    theirs.count = 0;
    ours.count = hak_stack_unwind(&bounds, ours.pc, ours.slot);
    _Unwind_Backtrace(theirs_note, &theirs);
    while (a < ours.count && ours.pc[a] != pc) a++;
    while (b < theirs.count && theirs.pc[b] != pc) b++;
    unsigned count = theirs.count - b;
    if (count > deepest) deepest = count;
    compared++;
    bool same = b < theirs.count && ours.count - a == count;
    for (unsigned i = 0; same && i < count; i++) /* no return address says where a thread was interrupted */
        same = ours.pc[a + i] == theirs.pc[b + i] && (i == 0 || ours.slot[a + i] == theirs.slot[b + i]);
    if (same || different++) return;
    first_different = pc;
    print_error("at %#lx: ours %u frames, theirs %u\n", (unsigned long)pc, ours.count - a, count);
    for (unsigned i = 0; a + i < ours.count || b + i < theirs.count; i++)
        print_error("  %#18lx %#18lx\n", a + i < ours.count ? (unsigned long)ours.pc[a + i] : 0UL,
                    b + i < theirs.count ? (unsigned long)theirs.pc[b + i] : 0UL);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    const ucontext_t *at = context;
#ifdef __x86_64__
    compare_from((uintptr_t)at->uc_mcontext.gregs[REG_RIP]);
#else
    compare_from((uintptr_t)at->uc_mcontext.pc);
#endif
}

static void handle(int number, int flags) {
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags };
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static int order(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static FILE *nowhere;

/* Leaves, calls by way of the loader's stubs, callbacks from libc, functions with large frames, tail calls, variable arrays. */
static __attribute__((noinline)) double work(unsigned depth) {
    char text[300];
    int numbers[40];
    volatile char room[depth * 16 + 1];
    room[0] = 1;
    for (int i = 0; i < 40; i++) numbers[i] = (i * 7919) % 41;
    qsort(numbers, 40, sizeof *numbers, order);
    snprintf(text, sizeof text, "%d %s %.3f %lx", numbers[3], "abc", sqrt(depth + 2.0), (unsigned long)depth);
    double sum = strtod(text, NULL) + room[0];
    fputs(text, nowhere); /* functions that clean up when they are left by a cancellation */
    fflush(nowhere);
    if (depth > 0) sum += work(depth - 1);
    memset(text, (int)depth, sizeof text);
    return sum + pow(sum, 0.1);
}

static void a_stack_is_what_libgcc_finds(void **state) {
    (void)state;
    compare_from((uintptr_t)__builtin_return_address(0));
    assert_true(deepest >= 3);
    assert_int_equal(different, 0);
    handle(SIGUSR1, 0);
    raise(SIGUSR1);
    stack_t alternate = { .ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = STACK_BYTES };
    assert_true(alternate.ss_sp != MAP_FAILED);
    assert_int_equal(sigaltstack(&alternate, NULL), 0);
    handle(SIGUSR1, SA_ONSTACK);
    unsigned before = deepest;
    deepest = 0;
    raise(SIGUSR1);
    assert_int_equal(deepest, before); /* through the signal, and on on the other stack */
    assert_int_equal(different, 0);
}

static void at_each_instruction_too(void **state) {
    (void)state;
#ifdef __x86_64__
    nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
    handle(SIGTRAP, 0);
    bounds = (struct hak_stack_bounds){ 0, 0 };
    compared = 0;
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
    double sum = work(3);
    __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
    assert_true(sum > 1);
    if (different) print_error("%u of %u differ, the first at %#lx\n", different, compared, (unsigned long)first_different);
    assert_true(compared > 10000);
    assert_int_equal(different, 0);
#else
    skip();
#endif
}

/* --- frames that are none --- */

#ifdef __x86_64__
static unsigned found;
static uintptr_t frame_pointer, return_address;

static void look_and_leave(void) {
    static struct frames frames;
    struct hak_stack_bounds here = { 0, 0 };
    found = hak_stack_unwind(&here, frames.pc, frames.slot);
    _exit(found >= 2 ? 0 : 3);
}

/* Its variable array has it keep the frame pointer. */
extern const char inside_framed[];
static __attribute__((noinline, used)) void framed(volatile char *byte, unsigned count) {
    volatile char room[count];
    room[0] = *byte;
    __asm__ volatile(".globl inside_framed\ninside_framed: nop" : : : "memory");
    *byte = room[0];
    usleep((unsigned)room[0]);
}

/* On a stack of its own, the first function of which "returns" to return_address with frame_pointer. */
static void coroutine(void) {
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t *top = (uintptr_t *)(void *)(stack + STACK_BYTES - 64) + 1;
    top[0] = return_address;
    __asm__ volatile("mov %0, %%rsp\n\tmov %1, %%rbp\n\tjmp *%2" : : "r"(top), "r"(frame_pointer), "r"(look_and_leave) : "memory");
}
#endif

static void what_is_no_frame_is_not_followed(void **state) {
    (void)state;
#ifdef __x86_64__
    const uintptr_t words[] = { 0, 1, 2, 8, 16, 4095, 4096, 0x7fffffffe000, 0x123456789abcdef0, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63 };
    enum { COUNT = sizeof words / sizeof *words };
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            return_address = i < COUNT ? words[i] : (uintptr_t)inside_framed;
            frame_pointer = i < COUNT ? 0 : words[i - COUNT];
            signal(SIGSEGV, SIG_DFL);
            signal(SIGBUS, SIG_DFL);
            signal(SIGABRT, SIG_DFL);
            alarm(20);
            coroutine();
        }
        int status;
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (status) print_error("return to %#lx, frame pointer %#lx: status %#x\n", (unsigned long)(i < COUNT ? words[i] : 0),
                                (unsigned long)(i < COUNT ? 0 : words[i - COUNT]), (unsigned)status);
        REQUIRE(status == 0);
    }
#else
    skip();
#endif
}

/* A coroutine's stack was in one mapping with another's, which is gone; what is remembered of the mapping is old. */
static void what_is_gone_is_not_followed(void **state) {
    (void)state;
    char *low = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(low != MAP_FAILED);
    struct hak_stack_bounds both = { (uintptr_t)low, (uintptr_t)low + 2 * STACK_BYTES };
    uintptr_t *frame = (void *)(low + 4096), *next = (void *)(low + 8192 + 4096 - 16), *gone = (void *)(low + STACK_BYTES + 64);
    frame[0] = (uintptr_t)next;
    next[0] = (uintptr_t)gone;
    gone[0] = 0;
    frame[1] = next[1] = gone[1] = 123456;
    static struct frames frames;
    struct hak_stack_here here = { 5000, (uintptr_t)low + 64, (uintptr_t)frame };
    assert_int_equal(hak_stack_walk(here, &both, frames.pc, frames.slot), 4);
    assert_int_equal(munmap(low + STACK_BYTES, STACK_BYTES), 0);
    assert_int_equal(hak_stack_walk(here, &both, frames.pc, frames.slot), 3);
    munmap(low, STACK_BYTES);
}

/* Else tables are found by a walk that takes the loader's lock, and all else here is the same. */
static void what_finds_tables_without_a_lock_is_found(void **state) {
    (void)state;
#ifdef DLFO_STRUCT_HAS_EH_DBASE
    void *theirs = dlsym(RTLD_DEFAULT, "_dl_find_object");
    assert_non_null(theirs);
    assert_ptr_equal(hak_loaded_function("_dl_find_object"), theirs);
#else
    skip();
#endif
}

int main(void) {
    hak_cfi_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_finds_tables_without_a_lock_is_found),
        cmocka_unit_test(what_is_gone_is_not_followed),
        cmocka_unit_test(a_stack_is_what_libgcc_finds),
        cmocka_unit_test(at_each_instruction_too),
        cmocka_unit_test(what_is_no_frame_is_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
