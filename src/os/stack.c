/* stack.c - see stack.h.
 *
 * The main thread's stack is where the kernel put it; the loader keeps the stack pointer of the program's entry, below
 * arguments and environment, so their lengths do not matter; where it does not (musl), the number of arguments is looked
 * for below the environment. Its control block lies anywhere, near a coroutine's stack as
 * well. Another thread's control block stands at the top of its stack, where glibc and musl put it, also on stacks that
 * the program brought (pthread_attr_setstack).
 *
 * Rejected:  pthread_getattr_np(): it reads /proc/self/maps, with stdio, for the main thread, and allocates; the stack
 *            pointer at a thread's first allocation: not the same from run to run.
 */
#include "os/stack.h"

#include <errno.h>
#include <sys/auxv.h>

extern void *__libc_stack_end __attribute__((weak)); /* glibc's loader */
extern char **environ;

enum { STACK_BYTES_MAX = 1 << 30, ARGUMENTS_BYTES_MAX = 8 << 20 }; /* the kernel takes 6 MiB of arguments and environment at most */

static uintptr_t thread_pointer(void) {
#if defined(__x86_64__)
    uintptr_t at;
    __asm__("mov %%fs:0, %0" : "=r"(at));
    return at;
#else
    return (uintptr_t)__builtin_thread_pointer();
#endif
}

static uintptr_t of_main;

void hak_os_stack_is_main(void) { __atomic_store_n(&of_main, thread_pointer(), __ATOMIC_RELAXED); }

/* Upwards: how many arguments, their addresses, NULL, the environment's addresses, .., the program's name. No address is as small as
 * their number. A program that begins by making an environment of its own gets the name's place. */
static uintptr_t entry_find(void) {
    static uintptr_t found; /* later the environment may lie elsewhere */
    uintptr_t entry = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (entry) return entry;
    int saved = errno;
    uintptr_t *at = (uintptr_t *)(void *)environ, count = 0;
    entry = getauxval(AT_EXECFN);
    errno = saved;
    if (entry - (uintptr_t)at < ARGUMENTS_BYTES_MAX) {
        uintptr_t here = (uintptr_t)__builtin_frame_address(0); /* arguments lie above; an environment that lies in a frame of main's may not */
        for (at -= 2; (uintptr_t)at > here && *at != count; at--) count++;
        if ((uintptr_t)at > here) entry = (uintptr_t)at;
    }
    __atomic_store_n(&found, entry, __ATOMIC_RELAXED);
    return entry;
}

HAK_COLD uintptr_t hak_os_stack_top(void) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), thread = thread_pointer();
    bool is_main = thread == __atomic_load_n(&of_main, __ATOMIC_RELAXED);
    if (!is_main && thread - here < STACK_BYTES_MAX) return thread; /* above us, and near: a thread that was made */
    void **end = &__libc_stack_end;
    if (end && *end) return (uintptr_t)*end;
    return entry_find();
}
