/* own_handler_before.c - a handler of the program's that was there before the first guarded block gets the signal after the report. */
#include "guard.h"

static void own(int signal, siginfo_t *info, void *context)
{
    (void)context;
    static const char line[] = "own handler\n";
    ssize_t ignored = write(1, line, sizeof line - 1);
    (void)ignored;
    _exit(signal == SIGSEGV && info->si_addr ? 41 : 97);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = own, .sa_flags = SA_SIGINFO };
    if (sigaction(SIGSEGV, &action, NULL) != 0) return 97;
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce_after_free("read of", block, block, 100);
    announce("ends", "41");
    announce("stack read", "touch_read main");
    touch_read(block);
    return 0;
}
