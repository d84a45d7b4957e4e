/* small_signal_stack.c - the fault comes to a thread whose stack for signals is as small as the C library allows. */
#include "guard.h"

#ifndef _SC_SIGSTKSZ
#define _SC_SIGSTKSZ -1 /* musl before 1.2.4 does not tell */
#endif

static char *fence;
static void own(int signal, siginfo_t *info, void *context)
{
    (void)context;
    for (int i = 0; i < PAGE; i++)
        if (fence[i] != 0x5a) _exit(96); /* the report ran over it */
    _exit(signal == SIGSEGV && info->si_addr ? 41 : 95);
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    struct sigaction action = { .sa_sigaction = own, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    long least = sysconf(_SC_SIGSTKSZ);
    size_t bytes = least > 8192 ? (size_t)least : 8192;
    fence = mmap(NULL, bytes + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(fence, 0x5a, PAGE); /* below the stack */
    stack_t stack = { .ss_sp = fence + PAGE, .ss_size = bytes };
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGSEGV, &action, NULL) != 0) return 97;
    block_drop(block);
    block = guarded(16, 100, ANY);
    block_drop(block);
    announce_after_free("read of", block, block, 100);
    announce("ends", "41");
    announce("stack read", "touch_read main");
    touch_read(block);
    return 0;
}
