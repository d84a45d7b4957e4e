/* own_handler_later.c - a handler of the program's that came after guarded blocks gets the signal, and the report is made all the same. */
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
    char *block = guarded(16, 100, ANY);
    struct sigaction action = { .sa_sigaction = own, .sa_flags = SA_SIGINFO }, old;
    if (sigaction(SIGSEGV, &action, &old) != 0) return 97;
    block_drop(block);
    block = guarded(16, 100, ANY); /* one more comes some time */
    block_drop(block);
    announce_after_free("read of", block, block, 100);
    announce("ends", "41");
    announce("stack read", "touch_read main");
    touch_read(block);
    return 0;
}
