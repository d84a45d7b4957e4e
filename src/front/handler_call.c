/* handler_call.c - one frame that catches every exception.
 *
 * Owns:      the frame's personality routine, the function that the unwinder asks what a frame does with an
 *            exception. This one says: catch all that is thrown, let pass what is forced (a thread's cancellation).
 * Borrows:   the unwinder and the C++ runtime of the program: whoever throws has brought them.
 * Threads:   any.
 * Source:    Itanium C++ ABI, Exception Handling, 1.6.2 and 2.5.3.
 * Rejected:  try and catch. They need __gxx_personality_v0, which can be made weak, but compilers reach it through a
 *            hidden COMDAT variable; when all of the library is one object with its hidden symbols made local, the
 *            linker may keep another object's copy, and the frame's personality is then garbage.
 */
#include "front/handler_call.h"

#include "os/loaded.h"

#include <unwind.h>

extern __typeof__(_Unwind_SetGR) _Unwind_SetGR __attribute__((weak));
extern __typeof__(_Unwind_SetIP) _Unwind_SetIP __attribute__((weak));
__attribute__((weak)) void *__cxa_begin_catch(void *exception);
__attribute__((weak)) void __cxa_end_catch(void);

/* Found before the function is called: by reference, or in a library that was loaded later. Every thread finds the
 * same, so they may all write. */
static struct {
    __typeof__(_Unwind_SetGR) *set_register;
    __typeof__(_Unwind_SetIP) *set_instruction;
    __typeof__(__cxa_begin_catch) *begin_catch;
    __typeof__(__cxa_end_catch) *end_catch;
} runtime;

#define FIND(function) (function ? (void *)(function) : hak_loaded_function(#function))
/* relaxed: pointers to code, which is there before the thread is */
#define RUNTIME(field) __atomic_load_n(&runtime.field, __ATOMIC_RELAXED)
#define RUNTIME_SET(field, found) __atomic_store_n(&runtime.field, (__typeof__(runtime.field))(found), __ATOMIC_RELAXED)

/* below, in assembly */
__attribute__((visibility("hidden"))) bool hak_handler_frame(void (*function)(void *), void *argument);
extern __attribute__((visibility("hidden"))) const char hak_handler_landing[];

/* Called by the unwinder, at most twice for a throw. */
__attribute__((visibility("hidden"), used)) _Unwind_Reason_Code hak_handler_personality(
    int version, _Unwind_Action actions, _Unwind_Exception_Class class, struct _Unwind_Exception *exception,
    struct _Unwind_Context *context);

_Unwind_Reason_Code hak_handler_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                            struct _Unwind_Exception *exception, struct _Unwind_Context *context) {
    (void)version, (void)class;
    if (!RUNTIME(set_register) || !RUNTIME(set_instruction)) return _URC_CONTINUE_UNWIND;
    if (actions & _UA_SEARCH_PHASE) return _URC_HANDLER_FOUND;
    if (!(actions & _UA_HANDLER_FRAME)) return _URC_CONTINUE_UNWIND; /* forced */
    RUNTIME(set_register)(context, __builtin_eh_return_data_regno(0), (uintptr_t)exception);
    RUNTIME(set_instruction)(context, (uintptr_t)hak_handler_landing);
    return _URC_INSTALL_CONTEXT;
}

/* What `catch (...) {}` compiles to. */
__attribute__((visibility("hidden"), used)) void hak_handler_caught(void *exception);

void hak_handler_caught(void *exception) {
    if (RUNTIME(begin_catch) && RUNTIME(end_catch)) {
        RUNTIME(begin_catch)(exception);
        RUNTIME(end_catch)();
    } else {
        _Unwind_Exception_Cleanup_Fn cleanup = ((struct _Unwind_Exception *)exception)->exception_cleanup;
        if (cleanup) cleanup(_URC_FOREIGN_EXCEPTION_CAUGHT, exception);
    }
}

bool hak_handler_call(void (*function)(void *), void *argument) {
    RUNTIME_SET(set_register, FIND(_Unwind_SetGR));
    RUNTIME_SET(set_instruction, FIND(_Unwind_SetIP));
    RUNTIME_SET(begin_catch, FIND(__cxa_begin_catch));
    RUNTIME_SET(end_catch, FIND(__cxa_end_catch));
    return hak_handler_frame(function, argument);
}

/* 0x1b: the personality's address is relative to the place where it is written, in four bytes. The landing is where
 * the unwinder goes on, with the frame's stack and the exception in the first register for it. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden hak_handler_frame\n"
        ".globl hak_handler_frame\n"
        ".type hak_handler_frame, @function\n"
        "hak_handler_frame:\n"
        "    .cfi_startproc\n"
        "    .cfi_personality 0x1b, hak_handler_personality\n"
        "    endbr64\n"
        "    sub $8, %rsp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    call *%rax\n"
        "    mov $1, %eax\n"
        "1:  add $8, %rsp\n"
        "    .cfi_remember_state\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        ".hidden hak_handler_landing\n"
        ".globl hak_handler_landing\n"
        "hak_handler_landing:\n"
        "    .cfi_restore_state\n"
        "    endbr64\n"
        "    mov %rax, %rdi\n"
        "    call hak_handler_caught\n"
        "    xor %eax, %eax\n"
        "    jmp 1b\n"
        "    .cfi_endproc\n"
        ".size hak_handler_frame, . - hak_handler_frame\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden hak_handler_frame\n"
        ".globl hak_handler_frame\n"
        ".type hak_handler_frame, %function\n"
        "hak_handler_frame:\n"
        "    .cfi_startproc\n"
        "    .cfi_personality 0x1b, hak_handler_personality\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-16]!\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset 29, -16\n"
        "    .cfi_offset 30, -8\n"
        "    mov x29, sp\n"
        "    mov x2, x0\n"
        "    mov x0, x1\n"
        "    blr x2\n"
        "    mov w0, #1\n"
        "1:  ldp x29, x30, [sp], #16\n"
        "    .cfi_remember_state\n"
        "    .cfi_restore 29\n"
        "    .cfi_restore 30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    ret\n"
        ".hidden hak_handler_landing\n"
        ".globl hak_handler_landing\n"
        "hak_handler_landing:\n"
        "    .cfi_restore_state\n"
        "    hint #36\n" /* bti j */
        "    bl hak_handler_caught\n"
        "    mov w0, #0\n"
        "    b 1b\n"
        "    .cfi_endproc\n"
        ".size hak_handler_frame, . - hak_handler_frame\n");
#else
#error "no frame written down for this processor"
#endif
